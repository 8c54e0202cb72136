// Model directories as a model server reads them: model.yaml, labels, and the files that select the
// version.
//
// Input: parts separated by a 0 byte: model.yaml, labels.txt, `target`, `.last-good`, joint.json,
// then names of further files of the version. An empty part means no such file.
//
// An accepted configuration is within its limits, names existing files, and is equal after writing
// and reading its settings. The version to serve exists.
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/json.h"
#include "codec/text.h"
#include "codec/yaml.h"
#include "input.h"
#include "os/testing/memory_file_system.h"
#include "serving/config.h"
#include "serving/layout.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using codec::Json;

const os::Path kModel = "/models/digits", kVersion = kModel / "3";

bool same(const serving::ModelConfig& a, const serving::ModelConfig& b) {
  return a.engine == b.engine && a.file == b.file && a.instances == b.instances &&
         a.threads == b.threads && a.memory_arena == b.memory_arena && a.options == b.options &&
         a.queue_max == b.queue_max && a.queue_bytes_max == b.queue_bytes_max &&
         a.queue_timeout == b.queue_timeout && a.warmup_runs == b.warmup_runs &&
         a.warmup_shapes == b.warmup_shapes && a.labels == b.labels && a.transform == b.transform;
}

// All settings of `config`, except transform and labels, which stay as in `yaml`.
Json written(const serving::ModelConfig& config, const Json& yaml) {
  Json out = Json::object({{"engine", config.engine},
                           {"file", config.file},
                           {"instances", config.instances},
                           {"threads", config.threads},
                           {"memoryArena", config.memory_arena}});
  for (const auto& [name, value] : config.options) out["options"].set(name, value);
  out.set("queue",
          Json::object({{"max", static_cast<std::int64_t>(config.queue_max)},
                        {"maxBytes", static_cast<std::int64_t>(config.queue_bytes_max)},
                        {"timeoutMs", static_cast<std::int64_t>(config.queue_timeout.count())}}));
  out.set("warmup", Json::object({{"runs", config.warmup_runs}}));
  for (const auto& [input, shape] : config.warmup_shapes) {
    Json sizes = Json::array();
    for (const std::int64_t size : shape) sizes.push_back(size);
    out["warmup"]["shapes"].set(input, std::move(sizes));
  }
  for (const char* name : {"labels", "preprocess", "postprocess"})
    if (yaml.contains(name)) out.set(name, yaml[name]);
  return out;
}

void check_config(os::FileSystem& fs, const std::string& yaml) {
  const auto config = serving::read_config(fs, kVersion, {});
  if (!config.ok()) {
    CHECK(!config.error().message().empty());
    return;
  }
  CHECK(!config->engine.empty() && config->file.find('/') == std::string::npos);
  CHECK(fs.stat(kVersion / config->file).value().has_value());
  CHECK(config->instances >= 1 && config->instances <= 256 && config->threads <= 256);
  CHECK(config->queue_max <= 1'000'000 && config->queue_timeout.count() >= 0 &&
        config->warmup_runs <= 1000);
  for (const auto& [input, shape] : config->warmup_shapes)
    for (const std::int64_t size : shape) CHECK(size >= 0 && size <= 1 << 24);
  for (const std::string& label : config->labels) CHECK(label.find('\n') == std::string::npos);
  CHECK(same(serving::read_config(fs, kVersion, {}).value(), *config));

  const Json parsed = yaml.empty() ? Json::object() : codec::parse_yaml(yaml).value();
  const std::string again = codec::write_yaml(written(*config, parsed));
  CHECK(os::write_file_atomically(fs, kVersion / "model.yaml", again).ok());
  const auto back = serving::read_config(fs, kVersion, {});
  CHECK(back.ok() && same(*back, *config));
}

void check_layout(os::FileSystem& fs) {
  const auto models = serving::scan(fs, "/models");
  CHECK(models.ok() && models->size() == 1);
  const serving::Wanted& wanted = models->at("digits");
  for (const std::string& version : {wanted.version, wanted.last_good}) {
    CHECK(version.size() <= 63 && version.find('/') == std::string::npos &&
          !version.starts_with('.'));
    if (!version.empty() && wanted.problem.empty())
      CHECK(version == "3" || version == "20" || version == "v1.0");
  }
  if (!wanted.problem.empty()) CHECK(wanted.fingerprint.empty());
  if (wanted.last_good_unchanged) CHECK(!wanted.last_good.empty());
  CHECK(serving::scan(fs, "/models").value() == *models);
  if (wanted.last_good.empty()) return;
  // The next server reads the note of the previous server.
  CHECK(os::write_file_atomically(
            fs, kModel / ".last-good",
            wanted.last_good + " " + serving::files_name(wanted.last_good_fingerprint))
            .ok());
  const serving::Wanted noted = serving::scan(fs, "/models").value().at("digits");
  CHECK(noted.last_good == wanted.last_good && noted.last_good_unchanged);
}

void check_order(const std::string& a, const std::string& b) {
  CHECK(!serving::older(a, a));
  CHECK(!(serving::older(a, b) && serving::older(b, a)));
  if (a != b) CHECK(serving::older(a, b) || serving::older(b, a));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::string yaml(input.until('\0')), labels(input.until('\0')), target(input.until('\0')),
      last_good(input.until('\0')), joint_file(input.until('\0'));
  os::testing::MemoryFileSystem fs;
  for (const char* version : {"3", "20", "v1.0"})
    CHECK(fs.make_directories(kModel / version, 0755).ok());
  const auto put = [&](const os::Path& path, const std::string& text) {
    if (!text.empty()) CHECK(os::write_file_atomically(fs, path, text).ok());
  };
  for (int i = 0; i < 8 && !input.rest().empty(); ++i) {
    const std::string name(input.until('\0'));
    // YAML holds UTF-8 only, so other file names could not be written into it below.
    if (codec::is_utf8(name) && name.size() <= 200 && name.find('/') == std::string::npos &&
        name != "." && name != "..")
      put(kVersion / name, name);
  }
  put(kVersion / "model.yaml", yaml);
  put(kVersion / "labels.txt", labels);
  put(kModel / "target", target);
  put(kModel / ".last-good", last_good);
  put(kModel / "joint.json", joint_file);
  check_order(target, last_good);
  check_layout(fs);
  check_config(fs, yaml);
  return 0;
}
