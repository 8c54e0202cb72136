#include "federated/masked_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "federated/internal/shown.h"
#include "federated/safetensors.h"
#include "privacy/fixed_point.h"
#include "privacy/mechanism.h"
#include "tensor/tensor.h"

namespace varda::federated {
namespace {

using codec::Json;
using privacy::FixedPoint;

constexpr std::string_view kMaskedFormat = "varda-masked/1";
constexpr std::string_view kMaskedTensor = "masked";
constexpr std::size_t kMaskedMetricsBytesMax = 64 << 10;
constexpr std::uint64_t kMaskedHeaderBytes = 1 << 20;

Refusal refused_mask(RefusalReason reason, std::string message) {
  return {reason, Error(Code::kInvalid, std::move(message))};
}

Result<Json> metrics_of_masked(std::string_view text) {
  if (text.empty()) return Json::object();
  if (text.size() > kMaskedMetricsBytesMax)
    return Error(Code::kInvalid, "the metadata \"metrics\" has more than 65536 bytes");
  TRY(Json out, codec::parse_json(text).context("the metadata \"metrics\""));
  if (!out.is_object()) return Error(Code::kInvalid, "the metadata \"metrics\" is no JSON object");
  for (const auto& [name, value] : out.as_object())
    if (!value.is_number())
      return Error(Code::kInvalid, "the metric " + shown(name) + " is no number");
  return out;
}

}  // namespace

Result<MaskedValues> to_integers(const MaskedForm& form, std::span<const float> delta,
                                 std::uint64_t samples) {
  if (samples == 0) return Error(Code::kInvalid, "an update without samples has no weight");
  TRY(const FixedPoint fixed, FixedPoint::of(form.limit, form.clients));
  double squares = 0;
  for (const float value : delta) squares += static_cast<double>(value) * value;
  if (!std::isfinite(squares))
    return Error(Code::kInvalid, "the update has values that are not finite");
  double factor = 1, weight = 1;
  if (form.weight_max > 0)
    factor = weight = std::min(static_cast<double>(samples), form.weight_max) / form.weight_max;
  if (form.clip > 0) {
    // Rounding moves each value by less than a step.
    const double room = form.clip - fixed.step() * std::sqrt(static_cast<double>(delta.size()));
    if (!(room > 0))
      return Error(Code::kInvalid,
                   "privacy.clip is below the rounding error of the secure sum: set a smaller "
                   "secureAggregation.limit");
    factor *= privacy::clip_factor(std::sqrt(squares), room);
  }
  MaskedValues out;
  for (const float value : delta)
    out.cut += std::abs(static_cast<double>(value) * factor) > form.limit ? 1 : 0;
  out.values.resize(delta.size() + kMaskedTail);
  privacy::KeyStream random(privacy::random_key());
  fixed.encode(delta, factor, random, std::span(out.values).first(delta.size()));
  out.values[delta.size()] = fixed.encode(weight * form.limit);
  out.values[delta.size() + 1] = 1;
  return out;
}

Result<MaskedMean> mean_of(const MaskedForm& form, std::span<const std::uint32_t> sum,
                           std::uint64_t clients, double divisor) {
  TRY(const FixedPoint fixed, FixedPoint::of(form.limit, form.clients));
  if (sum.size() < kMaskedTail) return Error(Code::kCorrupt, "the secure sum is empty");
  if (sum.back() != clients)
    return Error(Code::kCorrupt, "the secure sum of " + std::to_string(clients) +
                                     " clients counts " + std::to_string(sum.back()) +
                                     ": a client revealed wrong shares");
  const auto changes = sum.first(sum.size() - kMaskedTail);
  MaskedMean out;
  out.weight = fixed.decode(sum[changes.size()]) / form.limit;
  const double most = static_cast<double>(clients);
  if (!(out.weight > 0) || out.weight > most * (1 + 1e-6))
    return Error(Code::kCorrupt, "the weights of the secure sum add up to " +
                                     std::to_string(out.weight) + ", not to a number up to " +
                                     std::to_string(clients));
  if (!(divisor > 0)) divisor = out.weight;
  out.delta.reserve(changes.size());
  for (const std::uint32_t value : changes)
    out.delta.push_back(static_cast<float>(fixed.decode(value) / divisor));
  return out;
}

Result<std::string> encode_masked(const MaskedInfo& info, std::span<const std::uint32_t> values) {
  TRY(tensor::Tensor tensor,
      tensor::Tensor::over(tensor::DType::kUint32, {static_cast<std::int64_t>(values.size())},
                           std::as_bytes(values), nullptr));
  const std::vector<tensor::Named> tensors = {{std::string(kMaskedTensor), std::move(tensor)}};
  return write_safetensors(tensors, {{"format", std::string(kMaskedFormat)},
                                     {"task", info.task},
                                     {"base", info.base.hex()},
                                     {"metrics", codec::write_json(info.metrics)}});
}

Result<MaskedFile, Refusal> parse_masked(std::string bytes, const std::string& task,
                                         const codec::Sha256& base, std::size_t length) {
  auto file = Safetensors::of(std::move(bytes));
  if (!file.ok()) return refused_mask(RefusalReason::kFormat, file.error().message());
  const SafetensorsHeader& header = file->header();
  if (header.metadata("format") != kMaskedFormat)
    return refused_mask(RefusalReason::kFormat,
                        "the job aggregates securely, so the metadata \"format\" must be \"" +
                            std::string(kMaskedFormat) + "\", not " +
                            shown(header.metadata("format")));
  MaskedFile out;
  out.info.task = header.metadata("task");
  if (out.info.task != task)
    return refused_mask(RefusalReason::kTask,
                        "the update is for task " + shown(out.info.task) + ", not " + shown(task));
  const auto model = codec::Sha256::parse(header.metadata("base"));
  if (!model.ok() || *model != base)
    return refused_mask(RefusalReason::kBase, "the update is for another model than " + base.hex());
  out.info.base = *model;
  auto metrics = metrics_of_masked(header.metadata("metrics"));
  if (!metrics.ok()) return Refusal{RefusalReason::kFormat, std::move(metrics).error()};
  out.info.metrics = std::move(*metrics);
  const SafetensorsEntry* const entry = header.find(kMaskedTensor);
  if (entry == nullptr || header.entries().size() != 1 || entry->dtype != tensor::DType::kUint32)
    return refused_mask(RefusalReason::kFormat,
                        "a masked update has one tensor \"masked\" of the type U32");
  if (entry->shape.size() != 1 || entry->elements != length)
    return refused_mask(RefusalReason::kShape, "the masked vector has " +
                                                   std::to_string(entry->elements) +
                                                   " values, not " + std::to_string(length));
  const std::span<const std::byte> raw = file->bytes(*entry);
  out.values.resize(length);
  std::memcpy(out.values.data(), raw.data(), raw.size());
  return out;
}

Result<MaskedFile, Refusal> read_masked(os::FileSystem& fs, const os::Path& path,
                                        const std::string& task, const codec::Sha256& base,
                                        std::size_t length) {
  auto bytes = os::read_file(fs, path, kMaskedHeaderBytes + 4 * static_cast<std::uint64_t>(length));
  if (!bytes.ok()) {
    // The file is as long as its client announced, so too many bytes are the client's fault.
    const bool too_long = bytes.error().code() == Code::kExhausted;
    return Refusal{too_long ? RefusalReason::kFormat : RefusalReason::kIo,
                   std::move(bytes).error()};
  }
  return parse_masked(std::move(*bytes), task, base, length);
}

}  // namespace varda::federated
