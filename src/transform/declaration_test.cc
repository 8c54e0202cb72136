#include "transform/declaration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::transform {
namespace {

using ::testing::HasSubstr;

Status read(const std::string& yaml, Declaration& out) {
  const codec::Json json = codec::parse_yaml(yaml).value();
  if (const codec::Json* pre = json.find("preprocess")) TRY_VOID(read_preprocess(*pre, out));
  if (const codec::Json* post = json.find("postprocess")) TRY_VOID(read_postprocess(*post, out));
  return {};
}

TEST(Declaration, EveryImageSettingIsRead) {
  Declaration got;
  const Status status = read(R"(
preprocess:
  input: pixels
  image:
    channels: bgr
    resize: {width: 320, height: 240, filter: area, fit: stretch}
    layout: NHWC
    scale: 0.5
    mean: [1, 2, 3]
    std: 4
)",
                             got);
  ASSERT_TRUE(status.ok()) << status.error();
  ImageStep want;
  want.input = "pixels";
  want.channels = Channels::kBgr;
  want.width = 320;
  want.height = 240;
  want.filter = Filter::kArea;
  want.layout = "NHWC";
  want.scale = 0.5;
  want.mean = {1, 2, 3};
  want.std = {4};
  EXPECT_EQ(*got.image, want);
  EXPECT_FALSE(got.empty());
}

TEST(Declaration, OmittedSettingsHaveDefaults) {
  Declaration got;
  ASSERT_TRUE(read("{preprocess: {image: {}}, postprocess: {softmax: {}, top_k: {}}}", got).ok());
  EXPECT_EQ(got, (Declaration{ImageStep{}, SoftmaxStep{}, TopKStep{}, {}}));
  got = {};
  ASSERT_TRUE(read("postprocess: {nms: {format: cxcywh, normalized: true, threshold: 0, iou: 1, "
                   "max: 1, boxes: b, scores: s}}",
                   got)
                  .ok());
  EXPECT_EQ(got, (Declaration{{}, {}, {}, NmsStep{"b", "s", BoxFormat::kCxcywh, true, 0, 1, 1}}));
}

TEST(Declaration, ErrorNamesTheInvalidSetting) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"preprocess: 3", "preprocess must be a mapping"},
      {"preprocess: {}", "preprocess must have image"},
      {"preprocess: {input: x}", "preprocess must have image"},
      {"preprocess: {input: y, image: {}}", "preprocess.input must be a name: put it in quotes"},
      {"preprocess: {input: 3, image: {}}", "preprocess.input must be a name"},
      {"preprocess: {audio: {}, image: {}}", "unknown setting preprocess.audio"},
      {"preprocess: {image: []}", "preprocess.image must be a mapping"},
      {"preprocess: {image: {colour: rgb}}", "unknown setting preprocess.image.colour"},
      {"preprocess: {image: {channels: RGB}}",
       "preprocess.image.channels must be one of rgb, bgr, grey"},
      {"preprocess: {image: {layout: NCWH}}",
       "preprocess.image.layout must be one of NCHW, NHWC, NHW, CHW, HWC, HW"},
      {"preprocess: {image: {resize: {width: 0, height: 1}}}",
       "preprocess.image.resize.width must be a whole number from 1 to 16384"},
      {"preprocess: {image: {resize: {width: 20000, height: 1}}}", "from 1 to 16384"},
      {"preprocess: {image: {resize: {width: 4}}}",
       "preprocess.image.resize needs both width and height"},
      {"preprocess: {image: {resize: {filter: cubic}}}",
       "preprocess.image.resize.filter must be one of bilinear, nearest, area"},
      {"preprocess: {image: {resize: {fit: letterbox}}}",
       "preprocess.image.resize.fit: letterbox is not supported"},
      {"preprocess: {image: {resize: {fit: crop}}}", "preprocess.image.resize.fit must be stretch"},
      {"preprocess: {image: {resize: {size: 3}}}", "unknown setting preprocess.image.resize.size"},
      {"preprocess: {image: {scale: big}}", "preprocess.image.scale must be a number"},
      {"preprocess: {image: {scale: .inf}}", "preprocess.image.scale must be a number"},
      {"preprocess: {image: {scale: 1e300}}", "preprocess.image.scale must be a number"},
      {"preprocess: {image: {scale: 0}}", "preprocess.image.scale must not be 0"},
      {"preprocess: {image: {mean: []}}", "preprocess.image.mean must be a list"},
      {"preprocess: {image: {mean: [1, 2]}}",
       "preprocess.image.mean has 2 numbers, channels rgb are 3"},
      {"preprocess: {image: {channels: grey, std: [1, 2, 3]}}",
       "preprocess.image.std has 3 numbers, channels grey are 1"},
      {"preprocess: {image: {std: [1, 0, 1]}}", "preprocess.image.std must not be 0"},
      {"postprocess: []", "postprocess must be a mapping"},
      {"postprocess: {}", "postprocess needs one of softmax, top_k, nms"},
      {"postprocess: {sigmoid: {}}", "unknown setting postprocess.sigmoid"},
      {"postprocess: {anchors: {}}", "postprocess.anchors: anchors are not supported"},
      {"postprocess: {labels: coco.txt}", "postprocess.labels is not a step"},
      {"postprocess: {softmax: {axis: 1}}", "unknown setting postprocess.softmax.axis"},
      {"postprocess: {softmax: {input: ''}}", "postprocess.softmax.input must be a name"},
      {"postprocess: {top_k: {k: 0}}", "postprocess.top_k.k must be a whole number from 1 to 1000"},
      {"postprocess: {top_k: {n: 1}}", "unknown setting postprocess.top_k.n"},
      {"postprocess: {top_k: {}, nms: {}}", "postprocess must not have both top_k and nms"},
      {"postprocess: {nms: {format: yolo}}",
       "postprocess.nms.format must be one of xyxy, xywh, cxcywh"},
      {"postprocess: {nms: {normalized: 1}}", "postprocess.nms.normalized must be true or false"},
      {"postprocess: {nms: {threshold: 1.5}}",
       "postprocess.nms.threshold must be a number from 0 to 1"},
      {"postprocess: {nms: {iou: .nan}}", "postprocess.nms.iou must be a number from 0 to 1"},
      {"postprocess: {nms: {max: 1001}}", "postprocess.nms.max must be a whole number"},
      {"postprocess: {nms: {classes: 3}}", "unknown setting postprocess.nms.classes"},
  };
  for (const auto& [yaml, expected] : cases) {
    Declaration out;
    const Status status = read(yaml, out);
    ASSERT_FALSE(status.ok()) << yaml;
    EXPECT_THAT(status.error().message(), HasSubstr(expected)) << yaml;
    EXPECT_TRUE(status.error().terminal()) << yaml;
  }
}

}  // namespace
}  // namespace varda::transform
