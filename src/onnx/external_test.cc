#include "onnx/external.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "codec/protobuf.h"
#include "onnx/model.h"
#include "onnx/upgrade.h"
#include "onnx/weights.h"

namespace varda::onnx {
namespace {

namespace external_test {

using codec::ProtoWriter;
using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Entries = std::vector<std::pair<std::string, std::string>>;

/// w [2] of FP32
Tensor external(const Entries& entries, std::int64_t type = 1, std::int64_t size = 2) {
  ProtoWriter out;
  out.item(1, size).number(2, type).text(8, "w");
  for (const auto& [key, value] : entries) out.entry(13, key, value);
  out.number(14, 1);
  Tensor tensor{.name = "w", .data_type = type, .dims = {size}, .external = true};
  tensor.message = Bytes::of(std::move(out).bytes());
  return tensor;
}

/// y = a + w
std::string sum(const Tensor& w) {
  Model out;
  out.ir_version = 8;
  out.opsets[""] = 17;
  out.graph.inputs.push_back({.name = "a", .data_type = 1});
  out.graph.initializers.push_back(w);
  out.graph.nodes.push_back({.op_type = "Add", .inputs = {"a", "w"}, .outputs = {"y"}});
  out.graph.outputs.push_back({.name = "y"});
  return serialize(out);
}

tensor::Tensor reals(std::vector<float> values) {
  return tensor::Tensor::of<float>(DType::kFp32, {2}, std::span(values)).value();
}

/// "dir/w.bin" has four bytes and then 3, 4.
Result<std::string> read(const std::string& path, std::uint64_t offset, std::uint64_t count) {
  if (path != "dir/w.bin") return Error(Code::kNotFound, path + " is missing");
  const tensor::Tensor values = reals({3, 4});
  const std::string file =
      "head" +
      std::string(reinterpret_cast<const char*>(values.bytes().data()), values.bytes().size());
  return offset > file.size() ? "" : file.substr(offset, count);
}

Error error_of(const Entries& entries, std::int64_t type = 1, std::int64_t size = 2) {
  return embed_external(sum(external(entries, type, size)), read).error();
}

TEST(OnnxExternal, ValuesMoveIntoTheModelFile) {
  const Entries entries = {{"location", "dir/w.bin"}, {"offset", "4"}, {"length", "8"}};
  const auto file = embed_external(sum(external(entries)), read);
  ASSERT_TRUE(file.ok()) << file.error();
  const auto model = parse(*file);
  ASSERT_TRUE(model.ok()) << model.error();
  const Tensor& w = model->graph.initializers.at(0);
  EXPECT_FALSE(w.external);
  EXPECT_THAT(w.value().value().values<float>(), ElementsAre(3, 4));
  EXPECT_TRUE(replace_weights(*file, {{"w", reals({5, 6})}}).ok());
}

TEST(OnnxExternal, TensorOfAConstantNodeMovesToo) {
  Model model;
  model.ir_version = 8;
  model.opsets[""] = 17;
  model.graph.nodes.push_back(
      {.op_type = "Constant",
       .outputs = {"w"},
       .attributes = {{"value", external({{"location", "dir/w.bin"}, {"offset", "4"}})}}});
  model.graph.outputs.push_back({.name = "w"});
  const auto file = embed_external(serialize(model), read);
  ASSERT_TRUE(file.ok()) << file.error();
  auto embedded = parse(*file);
  ASSERT_TRUE(embedded.ok() && upgrade(*embedded).ok());
  const auto value = embedded->graph.initializers.at(0).value();
  ASSERT_TRUE(value.ok()) << value.error();
  EXPECT_THAT(value->values<float>(), ElementsAre(3, 4));
}

TEST(OnnxExternal, FileWithoutExternalValuesStays) {
  const std::string file = sum(Tensor::of("w", reals({1, 2})));
  EXPECT_EQ(embed_external(file, read).value(), file);
}

TEST(OnnxExternal, PathsThatLeaveTheDirectoryAreRefused) {
  for (const char* path : {"", "/etc/passwd", "..", "../w.bin", "dir/../../w.bin", "dir/.."}) {
    const Error error = error_of({{"location", path}});
    EXPECT_EQ(error.code(), Code::kInvalid) << path;
    EXPECT_THAT(error.message(), HasSubstr("no path below the model's directory")) << path;
  }
  EXPECT_EQ(error_of({{"location", "other"}}).code(), Code::kNotFound);
}

TEST(OnnxExternal, RangesThatDoNotFitTheTensorAreRefused) {
  const std::pair<std::string, std::string> location = {"location", "dir/w.bin"};
  for (const Entries& entries :
       std::vector<Entries>{{location, {"length", "4"}},
                            {location, {"length", "-8"}},
                            {location, {"length", ""}},
                            {location, {"offset", "5"}},
                            {location, {"offset", "1e3"}},
                            {location, {"offset", "18446744073709551615"}}})
    EXPECT_EQ(error_of(entries).code(), Code::kInvalid) << entries.at(1).second;
  EXPECT_EQ(error_of({location}, 1, 1'000'000'000).code(), Code::kExhausted);
  EXPECT_EQ(error_of({location}, 1, -2).code(), Code::kInvalid);
  EXPECT_EQ(error_of({location}, 8).code(), Code::kUnsupported);
}

}  // namespace external_test
}  // namespace
}  // namespace varda::onnx
