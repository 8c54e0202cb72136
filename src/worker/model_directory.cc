#include "worker/model_directory.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "codec/json.h"
#include "codec/yaml.h"
#include "onnx/external.h"
#include "serving/config.h"
#include "serving/layout.h"

namespace varda::worker {
namespace {

constexpr std::uint64_t kModelBytesMax = std::uint64_t{2} << 30;  // the limit of protobuf
constexpr std::uint64_t kYamlBytesMax = 1 << 20;
constexpr std::size_t kReadBytes = 1 << 20;
constexpr const char* kYaml = "model.yaml";

Result<ModelSource> read_directory(os::FileSystem& fs, const os::Path& directory) {
  TRY(serving::ModelConfig config,
      serving::read_config(fs, directory, {}).context(directory.string()));
  if (config.engine != "onnxruntime")
    return Error(Code::kInvalid, directory.string() + "/" + config.file + " is for engine " +
                                     config.engine + ", but only ONNX models can be trained");
  ModelSource out;
  out.file = directory / config.file;
  out.preprocess = std::move(config.transform);
  out.labels = std::move(config.labels);
  TRY(const auto yaml, fs.stat(directory / kYaml));
  if (yaml) {
    TRY(out.yaml, serving::read_text(fs, directory / kYaml, kYamlBytesMax));
    TRY(const codec::Json settings, codec::parse_yaml(out.yaml));
    out.labels_file = settings["labels"].string_or(out.labels_file);
  }
  return out;
}

/// The trained file is always model.onnx, so a model.yaml that names another file changes.
Result<std::string> yaml_for_result(const ModelSource& source) {
  TRY(codec::Json settings, codec::parse_yaml(source.yaml));
  if (!settings.contains("file")) return source.yaml;
  settings.set("file", "model.onnx");
  return codec::write_yaml(settings);
}

}  // namespace

os::Path followed(const os::Path& path) {
  std::error_code error;
  os::Path real = std::filesystem::canonical(path, error);
  return error ? path : real;
}

Result<std::string> read_regular(os::FileSystem& fs, const os::Path& file,
                                 std::uint64_t max_bytes) {
  TRY(const std::optional<os::FileInfo> info, fs.stat(file));
  if (!info) return Error(Code::kNotFound, file.string() + " does not exist");
  if (info->kind != os::FileKind::kFile)
    return Error(Code::kInvalid, file.string() + " is not a file");
  return os::read_file(fs, file, max_bytes);
}

Result<codec::Sha256> digest_of_file(os::FileSystem& fs, const os::Path& file) {
  TRY(const auto source, fs.open(file, os::Open::kRead));
  codec::Sha256Stream stream;
  while (true) {
    TRY(const std::string bytes, source->read(kReadBytes));
    if (bytes.empty()) return stream.finish();
    stream.update(bytes);
  }
}

namespace {

Result<std::string> read_range(os::FileSystem& fs, const os::Path& file, std::uint64_t offset,
                               std::uint64_t count) {
  TRY(const auto source, fs.open(file, os::Open::kRead).context(file.string()));
  TRY_VOID(source->seek(offset));
  std::string out;
  while (out.size() < count) {
    TRY(const std::string bytes, source->read(static_cast<std::size_t>(count - out.size())));
    if (bytes.empty()) return Error(Code::kInvalid, file.string() + " is too short");
    out += bytes;
  }
  return out;
}

}  // namespace

Result<ModelSource> read_model(os::FileSystem& fs, const os::Path& path) {
  const os::Path real = followed(path);
  TRY(const std::optional<os::FileInfo> info, fs.stat(real));
  if (!info) return Error(Code::kNotFound, path.string() + " does not exist");
  ModelSource out;
  if (info->kind == os::FileKind::kDirectory) {
    TRY(out, read_directory(fs, real));
  } else {
    out.file = real;
  }
  TRY(std::string bytes, read_regular(fs, followed(out.file), kModelBytesMax));
  if (out.file.extension() == ".safetensors") {
    out.bytes = std::move(bytes);
    return out;
  }
  // Values in other files come into the result, because a trained file must be whole.
  TRY(out.bytes, onnx::embed_external(bytes, [&](const std::string& name, std::uint64_t offset,
                                                 std::uint64_t count) {
                   return read_range(fs, followed(out.file).parent_path() / name, offset, count);
                 }).context(out.file.string()));
  return out;
}

Status write_beside(os::FileSystem& fs, const os::Path& directory, const ModelSource& source,
                    const std::vector<std::string>& classes) {
  if (!source.yaml.empty()) {
    TRY(const std::string yaml, yaml_for_result(source));
    TRY_VOID(os::write_file_atomically(fs, directory / kYaml, yaml));
  }
  // A line of the file is a class, so such names have no file.
  const bool lines = std::none_of(classes.begin(), classes.end(), [](const std::string& name) {
    return name.find_first_of("\r\n") != std::string::npos;
  });
  if (classes.empty() || !lines) return {};
  std::string text;
  for (const std::string& name : classes) text += name + "\n";
  return os::write_file_atomically(fs, directory / source.labels_file, text);
}

}  // namespace varda::worker
