#include "text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda_opencv {
namespace {

using testing::HasSubstr;
using Dims = std::vector<std::int64_t>;

TEST(Prototxt, InputLayerDeclaresTheInput) {
  const Inputs read = inputs_of_prototxt(R"(
name: 'net'  # a comment with { and "
layer { name: "data" type: "Input" top: "data" top: "mask"
        input_param { shape: { dim: 10 dim: 3 dim: 224 dim: 224 } shape { dim: 10, dim: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 weight_filler { type: "Input" } } })");
  EXPECT_EQ(read.problem, "");
  ASSERT_EQ(read.all.size(), 2u);
  EXPECT_EQ(read.all[0].name, "data");
  EXPECT_EQ(read.all[0].dims, (Dims{-1, 3, 224, 224}));
  EXPECT_EQ(read.all[1].name, "mask");
  EXPECT_EQ(read.all[1].dims, (Dims{-1, 1}));
}

TEST(Prototxt, OlderFormsDeclareTheInput) {
  const Inputs flat = inputs_of_prototxt(
      "input: \"a\" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9\n"
      "input: \"b\" input_dim: 1 input_dim: 1 input_dim: 4 input_dim: 4");
  ASSERT_EQ(flat.all.size(), 2u) << flat.problem;
  EXPECT_EQ(flat.all[1].dims, (Dims{-1, 1, 4, 4}));
  const Inputs shaped = inputs_of_prototxt("input: \"a\" input_shape { dim: 1 dim: 3 }");
  ASSERT_EQ(shaped.all.size(), 1u);
  EXPECT_EQ(shaped.all[0].dims, (Dims{-1, 3}));
  EXPECT_FALSE(inputs_of_prototxt("input: \"a\"").all.at(0).known_rank);
}

TEST(Prototxt, DamageIsReported) {
  EXPECT_THAT(inputs_of_prototxt("layer {").problem, HasSubstr("it ends inside a message"));
  EXPECT_THAT(inputs_of_prototxt("input").problem, HasSubstr("has no value"));
  EXPECT_THAT(inputs_of_prototxt("input_dim: x").problem, HasSubstr("not a number"));
  EXPECT_THAT(inputs_of_prototxt("").problem, HasSubstr("declares no input"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a{";
  EXPECT_THAT(inputs_of_prototxt(deep).problem, HasSubstr("nested too deep"));
}

TEST(DarknetCfg, NetSectionDeclaresTheInput) {
  const Inputs read = inputs_of_cfg(
      "# yolo\r\n[net]\r\nbatch=64\r\nwidth = 416\r\nheight=320\r\n\r\n[convolutional]\r\nwidth=1");
  ASSERT_EQ(read.all.size(), 1u) << read.problem;
  EXPECT_EQ(read.all[0].dims, (Dims{-1, 3, 320, 416}));
  EXPECT_THAT(inputs_of_cfg("[convolutional]\nwidth=1\nheight=1").problem, HasSubstr("no width"));
  EXPECT_THAT(inputs_of_cfg("[net]\nwidth=0\nheight=-4").problem, HasSubstr("no width"));
}

}  // namespace
}  // namespace varda_opencv
