#include "serving/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::serving {
namespace {

using ::testing::HasSubstr;

class Config : public ::testing::Test {
 public:
  Config() { EXPECT_TRUE(fs_.make_directories("/m", 0755).ok()); }
  Config& file(const std::string& name, const std::string& text = "") {
    EXPECT_TRUE(os::write_file_atomically(fs_, os::Path("/m") / name, text).ok());
    return *this;
  }
  Result<ModelConfig> read(const ModelConfig& defaults = {}) {
    return read_config(fs_, "/m", defaults);
  }
  std::string error() { return read().error().message(); }

  os::testing::MemoryFileSystem fs_;
};

TEST_F(Config, SingleOnnxFileNeedsNoConfiguration) {
  file("net.onnx").file("labels.txt", "zero\none\r\ntwo");
  const ModelConfig config = read({.instances = 3}).value();
  EXPECT_EQ(config.engine, "onnxruntime");
  EXPECT_EQ(config.file, "net.onnx");
  EXPECT_EQ(config.instances, 3u);
  EXPECT_EQ(config.labels, (std::vector<std::string>{"zero", "one", "two"}));
}

TEST_F(Config, ModelOnnxIsPreferredAmongSeveralFiles) {
  file("model.onnx").file("other.onnx");
  EXPECT_EQ(read()->file, "model.onnx");
}

TEST_F(Config, ErrorForSeveralOrNoModelFilesGivesAdvice) {
  EXPECT_THAT(error(), HasSubstr("no model.onnx"));
  file("a.onnx").file("b.onnx");
  EXPECT_EQ(error(),
            "several model files (a.onnx, b.onnx): name one model.onnx, or set file in model.yaml");
}

TEST_F(Config, FilesOfTheOpenCvEngineNeedNoConfiguration) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"frozen.pb", "labels.txt"},
      {"net.caffemodel", "net.prototxt"},
      {"yolo.weights", "yolo.cfg"}};
  for (const auto& [model, other] : cases) {
    file(model).file(other, "one");
    const auto config = read();
    ASSERT_TRUE(config.ok()) << config.error();
    EXPECT_EQ(config->engine, "opencv");
    EXPECT_EQ(config->file, model);
    EXPECT_TRUE(fs_.remove("/m/" + model).ok());
  }
}

TEST_F(Config, SavedModelIsNoFrozenGraph) {
  file("saved_model.pb");
  EXPECT_THAT(error(), HasSubstr("which TensorFlow Serving loads"));
  file("frozen.pb");
  EXPECT_EQ(read()->file, "frozen.pb");
}

TEST_F(Config, NamedEngineChoosesItsOwnFile) {
  file("a.onnx").file("b.pb").file("model.yaml", "engine: opencv\n");
  EXPECT_EQ(read()->file, "b.pb");
}

TEST_F(Config, EverySettingIsRead) {
  file("net.pt").file("classes", "cat\n").file("model.yaml", R"(
engine: torch
file: net.pt
instances: 2
threads: 4
memoryArena: false
options: {optimization: basic, level: 3}
queue: {max: 8, maxBytes: 1000, timeoutMs: 50}
warmup: {runs: 1, shapes: {image: [1, 3, 224, 224]}}
labels: classes
preprocess: {image: {channels: grey}}
postprocess: {top_k: {k: 2}}
)");
  const ModelConfig config = read().value();
  EXPECT_EQ(config.engine, "torch");
  EXPECT_EQ(config.file, "net.pt");
  EXPECT_EQ(config.instances, 2u);
  EXPECT_EQ(config.threads, 4u);
  EXPECT_FALSE(config.memory_arena);
  EXPECT_EQ(config.options,
            (std::map<std::string, std::string>{{"optimization", "basic"}, {"level", "3"}}));
  EXPECT_EQ(config.queue_max, 8u);
  EXPECT_EQ(config.queue_bytes_max, 1000u);
  EXPECT_EQ(config.queue_timeout, std::chrono::milliseconds(50));
  EXPECT_EQ(config.warmup_runs, 1u);
  EXPECT_EQ(config.warmup_shapes.at("image"), (tensor::Shape{1, 3, 224, 224}));
  EXPECT_EQ(config.labels, (std::vector<std::string>{"cat"}));
  EXPECT_EQ(config.transform.image->channels, transform::Channels::kGrey);
  EXPECT_EQ(config.transform.top_k->k, 2);
}

TEST_F(Config, ErrorNamesTheInvalidSetting) {
  file("model.onnx");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"instance: 2", "unknown setting instance"},
      {"instances: 0", "instances must be a whole number from 1 to 64"},
      {"instances: 65", "instances must be a whole number from 1 to 64"},
      {"queue: {maxBytes: 1073741825}",
       "queue.maxBytes must be a whole number from 0 to 1073741824"},
      {"instances: two", "instances must be"},
      {"threads: -1", "threads must be"},
      {"queue: {length: 3}", "unknown setting queue.length"},
      {"queue: 3", "queue must be a mapping"},
      {"warmup: {shapes: {x: 3}}", "warmup.shapes.x must be a list"},
      {"file: ../secret.onnx", "file must be the name of a file"},
      {"file: gone.onnx", "file gone.onnx does not exist"},
      {"labels: a/b", "labels must be the name of a file"},
      {"memoryArena: 1", "memoryArena must be true or false"},
      {"preprocess: {image: {chanels: rgb}}",
       "model.yaml: unknown setting preprocess.image.chanels"},
      {"postprocess: {top_k: {}, nms: {}}",
       "model.yaml: postprocess must not have both top_k and nms"},
      {"options: {a: [1]}", "options.a must be a single value"},
      {"[1]", "model.yaml must be a mapping"},
      {"a: b: c", "model.yaml"},
  };
  for (const auto& [yaml, expected] : cases) {
    file("model.yaml", yaml + "\n");
    const auto result = read();
    ASSERT_FALSE(result.ok()) << yaml;
    EXPECT_THAT(result.error().message(), HasSubstr(expected)) << yaml;
  }
}

TEST_F(Config, UnknownFileKindNeedsAnEngine) {
  file("net.bin").file("model.yaml", "file: net.bin\n");
  EXPECT_EQ(error(), "model.yaml: engine must be set for net.bin");
}

}  // namespace
}  // namespace varda::serving
