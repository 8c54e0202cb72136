// Joint inference, by the first letter. c: a joint.json. p: a policy and its parameters, one key
// and value per line. Otherwise: an answer for a policy to judge. It has the policy's name, one
// parameter (key=value), and the tensors, one per line as "name TYPE dim dim …". After an empty
// line come the bytes that fill all tensors repeatedly.
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/text.h"
#include "input.h"
#include "tiers/config.h"
#include "tiers/policy.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using tiers::PolicyParameter;

void config(std::string_view text) {
  const auto config = tiers::parse_config(text);
  if (!config.ok()) {
    CHECK(codec::is_utf8(config.error().message()) || !codec::is_utf8(text));
    return;
  }
  CHECK(tiers::parse_config(codec::write_json(to_json(*config))).value() == *config);
  for (const auto& tier : config->tiers) {
    if (tier.policy) CHECK(tiers::make_policy(tier.policy->name, tier.policy->parameters).ok());
  }
}

void policy(fuzz::Input& input) {
  const std::string name(input.line());
  std::vector<PolicyParameter> parameters;
  while (!input.rest().empty()) {
    std::string key(input.line());
    parameters.push_back({std::move(key), std::string(input.line())});
  }
  const auto faults = tiers::check_policy(name, parameters);
  CHECK(tiers::make_policy(name, parameters).ok() == faults.empty());
  for (const auto& fault : faults)
    CHECK(codec::is_utf8(fault.what) && (!fault.index || *fault.index < parameters.size()));
}

/// The tensor that a line describes; absent if malformed or large.
std::optional<tensor::Named> tensor_of(std::string_view line, std::string_view bytes) {
  fuzz::Input fields(reinterpret_cast<const std::uint8_t*>(line.data()), line.size());
  const std::string name(fields.until(' '));
  const auto type = tensor::parse_dtype(fields.until(' '));
  tensor::Shape shape;
  while (!fields.rest().empty()) {
    const std::string field(fields.until(' '));
    shape.push_back(field.empty() || field.size() > 9 ||
                            field.find_first_not_of("0123456789") != std::string::npos
                        ? 0
                        : std::stoll(field));
  }
  const auto size = tensor::elements(shape);
  if (!type || !size.ok() || *size > 4096 || shape.size() > 16 || bytes.empty())
    return std::nullopt;
  if (*type == tensor::DType::kBytes) {
    std::vector<std::string> items;
    for (std::size_t i = 0; i < *size; ++i) items.emplace_back(1, bytes[i % bytes.size()]);
    return tensor::Named{name, tensor::Tensor::of_strings(shape, items).value()};
  }
  auto made = tensor::Tensor::allocate(*type, shape).value();
  const auto room = made.mutable_bytes();
  for (std::size_t i = 0; i < room.size(); ++i)
    room[i] = static_cast<std::byte>(bytes[i % bytes.size()]);
  return tensor::Named{name, std::move(made)};
}

void judge(fuzz::Input& input) {
  const std::string name(input.line());
  const std::string key(input.until('='));
  std::vector<PolicyParameter> parameters{{key, std::string(input.line())}};
  if (key.empty()) parameters.clear();
  const auto policy = tiers::make_policy(name, parameters);
  if (!policy.ok()) return;
  std::vector<std::string_view> lines;
  while (lines.size() < 8) {
    lines.push_back(input.line());
    if (lines.back().empty()) break;
  }
  std::vector<tensor::Named> outputs;
  for (const std::string_view line : lines) {
    if (auto made = tensor_of(line, input.rest())) outputs.push_back(std::move(*made));
  }
  const auto judgement = tiers::judge(*policy, outputs);
  CHECK(judgement.hard == (judgement.samples_hard > 0));
  CHECK(judgement.samples_hard + judgement.samples_invalid <= judgement.samples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'c':
      config(input.rest());
      break;
    case 'p':
      policy(input);
      break;
    default:
      judge(input);
  }
  return 0;
}
