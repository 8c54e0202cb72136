#include "participant/task.h"

#include <cmath>
#include <limits>
#include <utility>

#include "codec/settings_reader.h"

namespace varda::participant {
namespace {

using codec::Choice;
using codec::Json;
using codec::SettingsReader;
using federated::Encoding;
using tensor::DType;

constexpr std::size_t kIdBytesMax = 128;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 40;
constexpr std::int64_t kNumberMax = 1'000'000'000;
constexpr std::size_t kLabelsMax = 100'000;
constexpr std::size_t kSumBytesMax = 512;

constexpr Choice<Task::Kind> kKinds[] = {
    {"train", Task::Kind::kTrain}, {"evaluate", Task::Kind::kEvaluate}, {"end", Task::Kind::kEnd}};
constexpr Choice<std::pair<Encoding, DType>> kEncodings[] = {
    {"dense", {Encoding::kDense, DType::kFp32}}, {"fp16", {Encoding::kDense, DType::kFp16}},
    {"bf16", {Encoding::kDense, DType::kBf16}},  {"int8", {Encoding::kInt8, DType::kFp32}},
    {"topk", {Encoding::kTopK, DType::kFp32}},
};

Error wrong(const std::string& member, const std::string& wanted) {
  return Error(Code::kInvalid, "the task's " + member + " must be " + wanted);
}

/// The id becomes a part of URLs and of the names of streams.
bool is_id(std::string_view text) {
  if (text.empty() || text.size() > kIdBytesMax || text.front() == '.') return false;
  for (const char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_' || c == '.'))
      return false;
  return true;
}

Status read_file_member(const Json& json, const std::string& member, Task::File& out) {
  const auto digest = codec::Sha256::parse(json["sha256"].as_string());
  if (!digest.ok()) return wrong(member + ".sha256", "64 lower-case hex digits");
  out.digest = *digest;
  const std::int64_t bytes = json["bytes"].as_integer(-1);
  if (bytes < 1 || bytes > kBytesMax) return wrong(member + ".bytes", "from 1 to 2^40");
  out.bytes = static_cast<std::uint64_t>(bytes);
  return {};
}

Status read_model_file(const Json& json, Task& out) {
  Task::ModelFile file;
  TRY_VOID(read_file_member(json, "file", file));
  if (json["labels"].size() > kLabelsMax) return wrong("file.labels", "at most 100000 names");
  for (const Json& label : json["labels"].as_array()) file.labels.push_back(label.as_string());
  file.yaml = json["yaml"].as_string();
  out.file = std::move(file);
  return {};
}

Status read_train(const Json& json, Task::Train& out) {
  Status status;
  SettingsReader in(json, "train", status);
  in.integer("localEpochs", out.local_epochs, 1, kNumberMax);
  in.integer("localSteps", out.local_steps, 0, kNumberMax);
  std::int64_t seed = 1;
  in.integer("seed", seed, 0, std::numeric_limits<std::int64_t>::max());
  out.seed = static_cast<std::uint64_t>(seed);
  in.number("proximal", out.proximal, {0, 1e9});
  in.boolean("lossBefore", out.loss_before);
  TRY_VOID(std::move(status));
  const Json& control = json["control"];
  if (control.is_object()) {
    TRY_VOID(read_file_member(control, "train.control", out.control.emplace()));
    out.use_control = true;
  } else {
    out.use_control = control.as_bool();
  }
  if (const Json* trainer = json.find("trainer"); trainer != nullptr && !trainer->is_null()) {
    if (!trainer->is_object()) return wrong("train.trainer", "an object");
    out.trainer = *trainer;
  }
  return {};
}

Status read_update(const Json& json, Task::Update& out) {
  Status status;
  SettingsReader in(json, "update", status);
  std::pair<Encoding, DType> encoding = {out.encoding, out.dtype};
  in.choice("encoding", encoding, kEncodings);
  out.encoding = encoding.first;
  out.dtype = encoding.second;
  in.number("keep", out.keep, {0, 1, codec::kAboveLow});
  std::int64_t bytes = 0;
  in.integer("bytesMax", bytes, 0, kBytesMax);
  out.bytes_max = static_cast<std::uint64_t>(bytes);
  TRY_VOID(std::move(status));
  // A client that ignored a wrong request for noise would send an unprotected update.
  if (const Json* noise = json.find("noise"); noise != nullptr && !noise->is_null()) {
    out.noise = Task::Update::Noise{};
    Task::Update::Noise& wanted = *out.noise;
    wanted.clip = (*noise)["clip"].as_double();
    wanted.deviation = (*noise)["deviation"].as_double();
    for (const double value : {wanted.clip, wanted.deviation})
      if (!(value > 0) || !std::isfinite(value))
        return wrong("update.noise", "{clip, deviation}, both positive");
  }
  return {};
}

/// A client that ignored a wrong member would send an unprotected update.
Status read_secure(const Json& json, Task& out) {
  Task::Secure secure;
  secure.sum = json["sum"].as_string();
  secure.client = json["client"].as_string();
  const std::int64_t length = json["length"].as_integer();
  secure.limit = json["limit"].as_double();
  for (const auto& [name, target] :
       {std::pair("weightMax", &secure.weight_max), std::pair("clip", &secure.clip)}) {
    const Json* const value = json.find(name);
    if (value == nullptr) continue;
    *target = value->as_double();
    if (!(**target > 0) || !std::isfinite(**target))
      return wrong(std::string("secure.") + name, "a number above 0");
  }
  if (secure.sum.empty() || secure.sum.size() > kSumBytesMax || secure.client.empty() ||
      secure.client.size() > kSumBytesMax || length < 2 || length > kBytesMax ||
      !(secure.limit > 0) || !std::isfinite(secure.limit))
    return wrong("secure", "{sum, client, length, limit}");
  secure.length = static_cast<std::size_t>(length);
  out.secure = std::move(secure);
  return {};
}

}  // namespace

std::string_view to_string(Task::Kind kind) { return codec::choice_name(kKinds, kind); }

Result<Task> parse_task(std::string_view text) {
  if (text.size() > kTaskBytesMax) return wrong("JSON", "at most 1 MiB");
  auto parsed = codec::parse_json(text, {.depth_max = 32, .nodes_max = 200'000});
  if (!parsed.ok()) return std::move(parsed).error().context("task");
  const Json& json = *parsed;
  if (!json.is_object()) return wrong("JSON", "an object");
  Task out;
  out.id = json["id"].as_string();
  if (!is_id(out.id)) return wrong("id", "1 to 128 letters, digits, '-', '_' and '.'");
  if (json["kind"].is_null()) return wrong("kind", "train, evaluate or end");
  Status status;
  SettingsReader in(json, "", status);
  in.choice("kind", out.kind, kKinds);
  in.integer("round", out.round, 0, kNumberMax);
  in.integer("rounds", out.rounds, 0, kNumberMax);
  TRY_VOID(std::move(status).context("task"));
  if (const Json& left = json["secondsLeft"]; left.is_number() && std::isfinite(left.as_double()))
    out.seconds_left = left.as_double();
  if (out.kind == Task::Kind::kEnd) {
    out.failed = json["failed"].as_bool();
    out.message = json["reason"].as_string();
    if (const std::string detail = json["message"].as_string(); !detail.empty())
      out.message += (out.message.empty() ? "" : ": ") + detail;
    return out;
  }
  TRY_VOID(read_file_member(json["model"], "model", out.model));
  if (json["file"].is_object()) TRY_VOID(read_model_file(json["file"], out));
  TRY_VOID(read_train(json["train"], out.train).context("task"));
  if (out.kind == Task::Kind::kTrain)
    TRY_VOID(read_update(json["update"], out.update).context("task"));
  if (const Json* secure = json.find("secure");
      secure != nullptr && !secure->is_null() && out.kind == Task::Kind::kTrain) {
    TRY_VOID(read_secure(*secure, out));
    if (out.update.encoding != Encoding::kDense || out.update.dtype != DType::kFp32)
      return wrong("update.encoding", "dense, since the task has the member secure");
  }
  return out;
}

}  // namespace varda::participant
