#include "training/internal/run_checkpoint.h"

#include <cstring>
#include <utility>

#include "codec/digest.h"
#include "codec/json.h"

namespace varda::training {
namespace {

using codec::Json;

constexpr std::string_view kMagic = "VARDARU1";
constexpr std::size_t kDigestBytes = 32, kLengthBytes = 8;

std::string_view digest_of(const codec::Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

Result<std::uint64_t> natural(const Json& json, std::string_view name) {
  const std::int64_t value = json[name].as_integer(-1);
  if (value < 0)
    return Error(Code::kCorrupt, "the member " + std::string(name) + " is no natural number");
  return static_cast<std::uint64_t>(value);
}

}  // namespace

std::string RunCheckpoint::encode() const {
  Json json = Json::object({{"identity", identity},
                            {"epoch", epoch},
                            {"batch", batch},
                            {"lossSum", loss_sum},
                            {"samples", samples},
                            {"learningRate", learning_rate},
                            {"epochSeconds", epoch_seconds},
                            {"seconds", seconds},
                            {"stopped", stopped},
                            {"bestEpoch", best_epoch},
                            {"bestValue", best_value},
                            {"trainerBytes", std::uint64_t{trainer.size()}}});
  Json records = Json::array();
  for (const EpochRecord& record : history) records.push_back(to_json(record));
  json.set("history", std::move(records));
  if (evaluation) json.set("evaluation", to_json(*evaluation));
  const std::string text = codec::write_json(json);
  const std::uint64_t length = text.size();
  std::string out;
  out.reserve(kMagic.size() + kLengthBytes + text.size() + trainer.size() + best_model.size() +
              kDigestBytes);
  out += kMagic;
  out.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  out += text;
  out += trainer;
  out += best_model;
  out += digest_of(codec::Sha256::of(out));
  return out;
}

Result<RunCheckpoint> RunCheckpoint::decode(std::string_view bytes) {
  const Error corrupt(Code::kCorrupt, "the checkpoint is damaged");
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kLengthBytes + kDigestBytes)
    return corrupt;
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestBytes);
  if (digest_of(codec::Sha256::of(content)) != bytes.substr(content.size())) return corrupt;
  std::uint64_t length = 0;
  std::memcpy(&length, content.data() + kMagic.size(), kLengthBytes);
  std::string_view rest = content.substr(kMagic.size() + kLengthBytes);
  if (length > rest.size()) return corrupt;
  const auto json = codec::parse_json(rest.substr(0, length));
  if (!json.ok() || !json->is_object()) return corrupt;
  rest.remove_prefix(length);

  RunCheckpoint out;
  out.identity = (*json)["identity"].as_string();
  TRY(const std::uint64_t epoch, natural(*json, "epoch"));
  TRY(out.batch, natural(*json, "batch"));
  TRY(out.samples, natural(*json, "samples"));
  TRY(const std::uint64_t best_epoch, natural(*json, "bestEpoch"));
  TRY(const std::uint64_t trainer_bytes, natural(*json, "trainerBytes"));
  out.epoch = static_cast<std::int64_t>(epoch);
  out.best_epoch = static_cast<std::int64_t>(best_epoch);
  out.loss_sum = (*json)["lossSum"].as_double();
  out.learning_rate = (*json)["learningRate"].as_double();
  out.epoch_seconds = (*json)["epochSeconds"].as_double();
  out.seconds = (*json)["seconds"].as_double();
  out.stopped = (*json)["stopped"].as_bool();
  out.best_value = (*json)["bestValue"].as_double();
  for (const Json& record : (*json)["history"].as_array()) {
    TRY(EpochRecord parsed, parse_epoch_record(record));
    out.history.push_back(std::move(parsed));
  }
  if (const Json* evaluation = json->find("evaluation")) {
    TRY(out.evaluation, parse_evaluation(*evaluation));
  }
  if (trainer_bytes > rest.size()) return corrupt;
  out.trainer = rest.substr(0, trainer_bytes);
  out.best_model = rest.substr(trainer_bytes);
  return out;
}

}  // namespace varda::training
