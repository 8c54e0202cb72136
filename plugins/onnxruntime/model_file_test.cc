#include "model_file.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "test_model.h"

namespace varda_onnxruntime {
namespace {

namespace fs = std::filesystem;
using testing::bytes;
using ::testing::ElementsAre;
using testing::external;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::model;
using testing::node;

class ModelFile : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(version_ / "weights");
    std::ofstream(root_ / "secret") << "secret";
    std::ofstream(version_ / "weights/data.bin") << "weights";
    fs::create_symlink("../secret", version_ / "link");
    fs::create_directory_symlink("..", version_ / "up");
    fs::create_symlink("weights/data.bin", version_ / "inner");
    fs::create_directories(version_ / "*/_ORT_MEM_ADDR_");
    std::ofstream(version_ / "*/_ORT_MEM_ADDR_/*") << "a file of the name that means memory";
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string refused(std::string_view content, const char* name = "model.onnx") const {
    std::ofstream(version_ / name, std::ios::binary) << content;
    return why_refused(version_ / name);
  }
  const fs::path root_ =
      fs::path(::testing::TempDir()) / ("model-file-" + std::to_string(::getpid()));
  const fs::path version_ = root_ / "7";
};

TEST_F(ModelFile, ExternalTensorsInTheVersionDirectoryAreAccepted) {
  for (const char* location :
       {"weights/data.bin", "./weights/data.bin", "weights//data.bin", "inner"})
    EXPECT_EQ(refused(testing::leak(location, 7)), "") << location;
  EXPECT_EQ(refused(model(bytes(1, node("Identity", "a", "b")))), "") << "nothing is elsewhere";
}

TEST_F(ModelFile, ExternalTensorsOutsideTheVersionAreRefused) {
  for (const std::string& location :
       {(root_ / "secret").string(), std::string("/etc/passwd"), std::string("../secret"),
        std::string("weights/../../secret"), std::string("weights/../weights/data.bin"),
        std::string("link"), std::string("up/secret"), std::string("weights"), std::string("."),
        std::string("missing"), std::string("*/_ORT_MEM_ADDR_/*"),
        std::string("/*/_ORT_MEM_ADDR_/*"), std::string(),
        std::string("weights/data.bin\0/../secret", 27)})
    EXPECT_THAT(refused(testing::leak(location, 6)), HasSubstr("it keeps a tensor in")) << location;
}

TEST_F(ModelFile, ExternalLocationsAreFoundInEveryPartOfTheModel) {
  const std::string tensor = external("t", "x", 1);
  const std::string attribute = bytes(1, "value") + bytes(5, tensor);
  const std::string sparse = bytes(1, tensor);
  const std::string graph = bytes(5, tensor);
  const struct {
    const char* where;
    std::string content;
  } cases[] = {
      {"initializer", model(bytes(5, tensor))},
      {"sparse initializer", model(bytes(15, sparse))},
      {"indices of one", model(bytes(15, bytes(2, tensor)))},
      {"Constant", model(bytes(1, node("Constant", "", "c", bytes(5, attribute))))},
      {"tensors of a node", model(bytes(1, node("X", "", "c", bytes(5, bytes(10, tensor)))))},
      {"sparse tensor of a node",
       model(bytes(1, node("Constant", "", "c", bytes(5, bytes(22, sparse)))))},
      {"sparse tensors of a node",
       model(bytes(1, node("X", "", "c", bytes(5, bytes(23, sparse)))))},
      {"subgraph", model(bytes(1, node("If", "", "c", bytes(5, bytes(6, graph)))))},
      {"subgraphs", model(bytes(1, node("X", "", "c", bytes(5, bytes(11, graph)))))},
      {"subgraph of a subgraph",
       model(bytes(
           1, node("If", "", "c",
                   bytes(5, bytes(6, bytes(1, node("If", "", "d", bytes(5, bytes(6, graph)))))))))},
      {"function", model("") + bytes(25, bytes(1, "f") + bytes(7, node("Constant", "", "c",
                                                                       bytes(5, attribute))))},
      {"default of a function's attribute", model("") + bytes(25, bytes(11, attribute))},
      {"initialization for training", model("") + bytes(20, bytes(1, graph))},
      {"algorithm for training", model("") + bytes(20, bytes(2, graph))},
      {"a graph given twice", model("") + bytes(7, graph)},
  };
  for (const auto& one : cases) {
    const Locations found = locations_in(one.content);
    EXPECT_EQ(found.problem, "") << one.where;
    EXPECT_THAT(found.all, ElementsAre("x")) << one.where;
  }
}

TEST_F(ModelFile, AllLocationsOfATensorAreChecked) {
  const std::string twice = bytes(13, testing::entry("location", "weights/data.bin")) +
                            bytes(13, testing::entry("location", "/etc/passwd"));
  EXPECT_THAT(locations_in(model(bytes(5, twice))).all,
              ElementsAre("weights/data.bin", "/etc/passwd"));
  const std::string merged = bytes(13, bytes(2, "/a") + bytes(1, "location") + bytes(2, "/b"));
  EXPECT_THAT(locations_in(model(bytes(5, merged))).all, ElementsAre("/b"))
      << "of one entry the last value counts";
}

TEST_F(ModelFile, FilesThatAreNotOnnxAreRefused) {
  const std::string good = testing::leak("weights/data.bin", 7);
  EXPECT_THAT(refused(good.substr(0, good.size() - 3)), HasSubstr("not an ONNX file"));
  EXPECT_THAT(refused("<html>not found</html>"), HasSubstr("not an ONNX file"));
  EXPECT_THAT(refused(std::string("\x18\0\0\0ORTM", 8)), HasSubstr("own format"));
  EXPECT_THAT(refused(good, "model.ort"), HasSubstr("own format"));
  EXPECT_THAT(why_refused(version_ / "none.onnx"), HasSubstr("cannot be read"));
  EXPECT_THAT(why_refused(version_), HasSubstr("cannot be read"));
  EXPECT_EQ(locations_in(std::string(20, '\xff')).problem.empty(), false);
}

// Protobuf reads a tag as 32 bits and drops what is above: 0x10'0000'006A is field 13 with a
// length, as 0x6A is.
TEST_F(ModelFile, TagsThatProtobufTruncatesAreRefused) {
  std::string tensor = external("t", "/etc/passwd", 1);
  const auto at = tensor.find('\x6a');
  ASSERT_NE(at, std::string::npos);
  for (const char* tag :
       {"\xea\x80\x80\x80\x10", "\xea\x80\x80\x80\x20", "\xea\x80\x80\x80\x80\x01"}) {
    std::string wide = tensor;
    wide.replace(at, 1, tag);
    EXPECT_THAT(refused(model(bytes(5, wide))), HasSubstr("not an ONNX file"))
        << "tag of " << std::string(tag).size() << " bytes";
  }
}

TEST_F(ModelFile, DeeplyNestedGraphsAreRefused) {
  std::string graph;
  for (int i = 0; i < 2000; ++i) graph = bytes(1, bytes(5, bytes(6, graph)));
  EXPECT_THAT(locations_in(model(graph)).problem, HasSubstr("deep"));
}

}  // namespace
}  // namespace varda_onnxruntime
