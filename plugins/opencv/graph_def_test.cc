#include "graph_def.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "codec/protobuf.h"

namespace varda_opencv {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using varda::codec::ProtoWriter;
using Fill = std::function<void(ProtoWriter&)>;

constexpr std::uint32_t kFloat = 1;

Fill shape(std::vector<std::int64_t> dims) {
  return [dims = std::move(dims)](ProtoWriter& out) {
    for (const std::int64_t size : dims)
      out.message(2, [size](ProtoWriter& dim) { dim.number(1, size); });
  };
}

/// A graph with one node that has one attribute.
std::string graph(const std::string& op, const std::string& key, const Fill& value) {
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& node) {
    node.text(1, "n").text(2, op).message(
        5, [&](ProtoWriter& entry) { entry.text(1, key).message(2, value); });
  });
  return std::move(out).bytes();
}

/// The problem with a constant of FP32 values.
std::string problem_of(const std::vector<std::int64_t>& dims, const std::string& content,
                       const std::string& packed = "") {
  return read_graph(graph("Const", "value",
                          [&](ProtoWriter& value) {
                            value.message(8, [&](ProtoWriter& tensor) {
                              tensor.number(1, kFloat)
                                  .message(2, shape(dims))
                                  .text(4, content)
                                  .text(5, packed);
                            });
                          }))
      .inputs.problem;
}

TEST(GraphDef, PlaceholdersBecomeInputs) {
  const Graph read =
      read_graph(graph("Placeholder", "shape",
                       [](ProtoWriter& value) {
                         value.message(7, shape({-1, 48, 48, 1}));
                       }) +
                 graph("Placeholder", "dtype", [](ProtoWriter& value) { value.number(6, 4); }) +
                 graph("Placeholder", "shape",
                       [](ProtoWriter& value) {
                         value.message(7, [](ProtoWriter& unknown) { unknown.number(3, 1); });
                       }) +
                 graph("Relu", "T", [](ProtoWriter& value) { value.number(6, kFloat); }));
  EXPECT_EQ(read.inputs.problem, "");
  ASSERT_EQ(read.inputs.all.size(), 3u);
  EXPECT_EQ(read.inputs.all[0].name, "n");
  EXPECT_EQ(read.inputs.all[0].dims, (std::vector<std::int64_t>{-1, 48, 48, 1}));
  EXPECT_TRUE(read.inputs.all[0].known_rank);
  EXPECT_FALSE(read.inputs.all[1].fp32) << "DT_UINT8";
  EXPECT_FALSE(read.inputs.all[1].known_rank);
  EXPECT_FALSE(read.inputs.all[2].known_rank);
  EXPECT_FALSE(read.channels_first);
}

TEST(GraphDef, DataFormatOfANodeIsTheLayout) {
  for (const auto& [format, first] :
       {std::pair("NHWC", false), {"NCHW", true}, {"NDHWC", false}, {"NCDHW", true}})
    EXPECT_EQ(read_graph(graph("Conv2D", "data_format",
                               [name = format](ProtoWriter& value) { value.text(2, name); }))
                  .channels_first,
              first)
        << format;
}

TEST(GraphDef, TensorMustHoldAsManyValuesAsItsShape) {
  EXPECT_EQ(problem_of({2, 3}, std::string(24, 'x')), "");
  EXPECT_EQ(problem_of({2, 3}, "", std::string(24, 'x')), "");
  EXPECT_EQ(problem_of({0}, ""), "");
  EXPECT_EQ(problem_of({}, std::string(4, 'x')), "");
  for (const std::size_t size : {0, 4, 20, 28}) {
    EXPECT_THAT(problem_of({2, 3}, std::string(size, 'x')), HasSubstr("\"n\" has 6 elements"));
    EXPECT_THAT(problem_of({2, 3}, "", std::string(size, 'x')), HasSubstr("another number"));
  }
}

TEST(GraphDef, EnormousAndNegativeShapesAreRefused) {
  for (const std::vector<std::int64_t>& dims :
       {std::vector<std::int64_t>{-1}, {1 << 20, 1 << 20}, {INT64_MAX, INT64_MAX, 0}})
    EXPECT_THAT(problem_of(dims, ""), HasSubstr("negative size or more than"));
  EXPECT_THAT(problem_of(std::vector<std::int64_t>(17, 1), ""), HasSubstr("more than 16"));
}

TEST(GraphDef, RepeatedPartsThatProtobufWouldMergeAreRefused) {
  const auto tensor = [](ProtoWriter& out) {
    out.number(1, kFloat).message(2, shape({1})).text(4, "1234");
  };
  EXPECT_THAT(
      read_graph(graph("Const", "value",
                       [&](ProtoWriter& value) { value.message(8, tensor).message(8, tensor); }))
          .inputs.problem,
      HasSubstr("two values"));
  EXPECT_THAT(read_graph(graph("Const", "value",
                               [&](ProtoWriter& value) {
                                 value.message(8, [&](ProtoWriter& out) {
                                   tensor(out);
                                   out.message(2, shape({1000}));
                                 });
                               }))
                  .inputs.problem,
              HasSubstr("two shapes"));
}

TEST(GraphDef, OtherBytesAreNoGraph) {
  for (const char* bytes : {"", "no graph", "\x08\x01", "\x0a\x7f"})
    EXPECT_THAT(read_graph(bytes).inputs.problem, HasSubstr("not a frozen TensorFlow graph"));
  EXPECT_THAT(read_graph("").inputs.all, IsEmpty());
}

}  // namespace
}  // namespace varda_opencv
