#include "aggregator/testing/sample_job.h"

#include <utility>

#include "base/rng.h"

namespace varda::aggregator {
namespace {

ModelFile sample_model() {
  const auto layout = federated::Layout::make({{"bias", tensor::DType::kFp32, {3}},
                                               {"weight", tensor::DType::kFp32, {5, 3}}})
                          .value();
  federated::Weights weights(layout);
  float next = 0;
  for (float& value : weights.values()) value = next += 0.25f;
  return ModelFile::parse(weights.to_safetensors().value()).value();
}

}  // namespace

SampleJob::SampleJob(std::string rule, std::int64_t clients, std::int64_t rounds)
    : model_(sample_model()), clients_(clients) {
  settings.aggregator.name = std::move(rule);
  settings.rounds = rounds;
  settings.quorum = 1;
  settings.minimum_clients = clients;
  settings.round_deadline = std::chrono::hours(1);
  settings.evaluation.every = 0;
}

Coordinator::Options SampleJob::options() const {
  return {.settings = settings, .job = "sample", .clients_expected = clients_};
}

std::vector<std::string> SampleJob::clients() const {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < clients_; ++i) out.push_back("default/c" + std::to_string(i));
  return out;
}

std::string SampleJob::update(const std::string& client, const federated::Task& task) const {
  return update({.task = task.id,
                 .base = codec::Sha256::parse(task.model).value(),
                 .samples = 10 + client.size() % 7 + static_cast<std::uint64_t>(client.back()),
                 .steps = 5,
                 .metrics = codec::Json::object({{"loss", 0.5}})},
                client, task.round);
}

std::string SampleJob::update(const federated::UpdateInfo& info, const std::string& client,
                              std::int64_t round, float factor) const {
  const auto rng = seeded_rng(static_cast<std::uint64_t>(round) * 1000 +
                              static_cast<std::uint64_t>(client.back()));
  std::vector<float> delta(model_.weights().layout().size());
  for (float& value : delta) value = factor * (static_cast<float>(rng->unit()) - 0.5f);
  return federated::encode_update(info, model_.weights().layout(), delta).value();
}

}  // namespace varda::aggregator
