#include "serving/config.h"

#include <algorithm>
#include <iterator>

#include "codec/json.h"
#include "codec/yaml.h"
#include "serving/layout.h"

namespace varda::serving {
namespace {

using codec::Json;

constexpr std::uint64_t kConfigBytesMax = 1 << 20;
constexpr std::size_t kLabelsMax = 100'000;

// Authors of archives set these values, but the operator owns the machine: limits bound what a
// single model takes.
constexpr std::int64_t kInstancesMax = 64;
constexpr std::int64_t kQueueBytesMax = std::int64_t{1} << 30;

// File suffixes that imply an engine. model.yaml names other engines.
struct Suffix {
  std::string_view text;
  std::string_view engine;
};
constexpr Suffix kSuffixes[] = {{".onnx", "onnxruntime"},
                                {".pb", "opencv"},          // a frozen TensorFlow graph
                                {".caffemodel", "opencv"},  // beside a .prototxt
                                {".weights", "opencv"}};    // of Darknet, beside a .cfg
constexpr std::string_view kSavedModel = "saved_model.pb";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

// The engine for a file; "" unknown.
std::string_view engine_of(std::string_view file) {
  for (const Suffix& suffix : kSuffixes)
    if (ends_with(file, suffix.text)) return suffix.engine;
  return "";
}

Result<std::string> file_name(const Json& value, std::string_view setting) {
  const std::string& name = value.as_string();
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    return Error(Code::kInvalid,
                 std::string(setting) + " must be the name of a file in the model's directory");
  }
  return name;
}

Result<std::int64_t> whole(const Json& value, std::string_view setting, std::int64_t min,
                           std::int64_t max) {
  if (!value.is_integer() || value.as_integer() < min || value.as_integer() > max) {
    return Error(Code::kInvalid, std::string(setting) + " must be a whole number from " +
                                     std::to_string(min) + " to " + std::to_string(max));
  }
  return value.as_integer();
}

Result<const Json::Object*> object(const Json& value, std::string_view setting) {
  if (!value.is_object()) return Error(Code::kInvalid, std::string(setting) + " must be a mapping");
  return &value.as_object();
}

Error unknown(std::string_view setting) {
  return Error(Code::kInvalid, "unknown setting " + std::string(setting));
}

Status read_queue(const Json& value, ModelConfig& config) {
  TRY(const Json::Object* members, object(value, "queue"));
  for (const auto& [name, item] : *members) {
    if (name == "max") {
      TRY(const std::int64_t max, whole(item, "queue.max", 0, 1'000'000));
      config.queue_max = static_cast<std::size_t>(max);
    } else if (name == "maxBytes") {
      TRY(const std::int64_t max, whole(item, "queue.maxBytes", 0, kQueueBytesMax));
      config.queue_bytes_max = static_cast<std::size_t>(max);
    } else if (name == "timeoutMs") {
      TRY(const std::int64_t timeout, whole(item, "queue.timeoutMs", 0, 86'400'000));
      config.queue_timeout = std::chrono::milliseconds(timeout);
    } else {
      return unknown("queue." + name);
    }
  }
  return {};
}

Status read_warmup(const Json& value, ModelConfig& config) {
  TRY(const Json::Object* members, object(value, "warmup"));
  for (const auto& [name, item] : *members) {
    if (name == "runs") {
      TRY(const std::int64_t runs, whole(item, "warmup.runs", 0, 1000));
      config.warmup_runs = static_cast<unsigned>(runs);
    } else if (name == "shapes") {
      TRY(const Json::Object* shapes, object(item, "warmup.shapes"));
      for (const auto& [input, sizes] : *shapes) {
        tensor::Shape shape;
        for (const Json& size : sizes.as_array()) {
          TRY(const std::int64_t dimension, whole(size, "warmup.shapes." + input, 0, 1 << 24));
          shape.push_back(dimension);
        }
        if (!sizes.is_array())
          return Error(Code::kInvalid, "warmup.shapes." + input + " must be a list of sizes");
        config.warmup_shapes[input] = std::move(shape);
      }
    } else {
      return unknown("warmup." + name);
    }
  }
  return {};
}

Status read_options(const Json& value, ModelConfig& config) {
  TRY(const Json::Object* members, object(value, "options"));
  for (const auto& [name, item] : *members) {
    if (item.is_array() || item.is_object() || item.is_null())
      return Error(Code::kInvalid, "options." + name + " must be a single value");
    config.options[name] = item.is_string() ? item.as_string() : codec::write_json(item);
  }
  return {};
}

Status read_settings(const Json& yaml, ModelConfig& config, std::string& labels) {
  TRY(const Json::Object* members, object(yaml, "model.yaml"));
  for (const auto& [name, value] : *members) {
    if (name == "engine") {
      config.engine = value.as_string();
      if (config.engine.empty()) return Error(Code::kInvalid, "engine must be a name");
    } else if (name == "file") {
      TRY(config.file, file_name(value, "file"));
    } else if (name == "instances") {
      TRY(const std::int64_t instances, whole(value, "instances", 1, kInstancesMax));
      config.instances = static_cast<unsigned>(instances);
    } else if (name == "threads") {
      TRY(const std::int64_t threads, whole(value, "threads", 0, 256));
      config.threads = static_cast<unsigned>(threads);
    } else if (name == "memoryArena") {
      if (!value.is_bool()) return Error(Code::kInvalid, "memoryArena must be true or false");
      config.memory_arena = value.as_bool();
    } else if (name == "options") {
      TRY_VOID(read_options(value, config));
    } else if (name == "queue") {
      TRY_VOID(read_queue(value, config));
    } else if (name == "warmup") {
      TRY_VOID(read_warmup(value, config));
    } else if (name == "labels") {
      TRY(labels, file_name(value, "labels"));
    } else if (name == "preprocess") {
      TRY_VOID(transform::read_preprocess(value, config.transform));
    } else if (name == "postprocess") {
      TRY_VOID(transform::read_postprocess(value, config.transform));
    } else {
      return unknown(name);
    }
  }
  return {};
}

Result<std::vector<std::string>> read_labels(os::FileSystem& fs,
                                             const std::filesystem::path& path) {
  TRY(const std::string text, read_text(fs, path, 16 * kConfigBytesMax));
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (out.size() == kLabelsMax)
      return Error(Code::kInvalid, "has more than " + std::to_string(kLabelsMax) + " lines");
    out.push_back(std::move(line));
    at = end + 1;
  }
  return out;
}

// Chooses the file if model.yaml names none: model.onnx, or the only file of an engine.
Result<std::string> find_file(const std::vector<std::string>& names, const std::string& engine) {
  const bool known = std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                                 [&](const Suffix& suffix) { return suffix.engine == engine; });
  const auto is_model = [&](const std::string& name) {
    if (name == kSavedModel) return false;
    if (engine.empty() || known)
      return !engine_of(name).empty() && (engine.empty() || engine_of(name) == engine);
    return name.rfind("model.", 0) == 0 && name != "model.yaml";
  };
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found), is_model);
  if (const auto it = std::find(found.begin(), found.end(), "model.onnx"); it != found.end())
    return *it;
  if (found.size() == 1) return found[0];
  if (found.empty() && std::find(names.begin(), names.end(), kSavedModel) != names.end()) {
    return Error(
        Code::kInvalid,
        "saved_model.pb is a SavedModel, which TensorFlow Serving loads: varda-serve reads "
        "frozen graphs (another name ending in .pb)");
  }
  if (found.empty()) {
    return Error(Code::kInvalid,
                 engine.empty()
                     ? "no model.onnx, no other model file, and no model.yaml that names "
                       "an engine and a file"
                     : "no model file");
  }
  return Error(Code::kInvalid, "several model files (" + found[0] + ", " + found[1] +
                                   (found.size() > 2 ? ", …" : "") +
                                   "): name one model.onnx, or set file in model.yaml");
}

}  // namespace

Result<ModelConfig> read_config(os::FileSystem& fs, const std::filesystem::path& directory,
                                const ModelConfig& defaults) {
  ModelConfig config = defaults;
  TRY(const std::vector<std::string> names, fs.list(directory / "."));
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string labels = has("labels.txt") ? "labels.txt" : "";
  if (has("model.yaml")) {
    TRY(const std::string text, read_text(fs, directory / "model.yaml", kConfigBytesMax));
    auto yaml = codec::parse_yaml(text);
    if (!yaml.ok()) return std::move(yaml).error().context("model.yaml");
    if (auto status = read_settings(*yaml, config, labels); !status.ok())
      return Error(status.error()).context("model.yaml");
  }
  if (config.file.empty()) {
    TRY(config.file, find_file(names, config.engine));
  } else if (!has(config.file)) {
    return Error(Code::kInvalid, "model.yaml: file " + config.file + " does not exist");
  }
  // Opening a pipe would block the loader forever.
  TRY(const std::optional<os::FileInfo> info, fs.stat(directory / config.file));
  if (info && info->kind == os::FileKind::kOther)
    return Error(Code::kInvalid, config.file + " is not a file");
  if (config.engine.empty()) {
    config.engine = engine_of(config.file);
    if (config.engine.empty())
      return Error(Code::kInvalid, "model.yaml: engine must be set for " + config.file);
  }
  if (!labels.empty()) {
    auto lines = read_labels(fs, directory / labels);
    if (!lines.ok()) return Error(Code::kInvalid, labels + ": " + lines.error().message());
    config.labels = std::move(lines).value();
  }
  return config;
}

}  // namespace varda::serving
