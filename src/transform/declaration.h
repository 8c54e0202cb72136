// Declaration: the steps before and after a model's run, from model.yaml.
//
//   preprocess:
//     input: images              # model input for the images; default: the only input
//     image:
//       channels: rgb            # rgb, bgr, grey
//       # bilinear, nearest, area; default size: the input's
//       resize: {width: 224, height: 224, filter: bilinear}
//       layout: NCHW             # NCHW, NHWC, NHW, CHW, HWC, HW; default: by the input's shape
//       scale: 0.00392157        # for values 0 to 255: (value * scale - mean) / std
//       mean: [0.485, 0.456, 0.406]   # one number per channel, ordered like `channels`, or one
//       std: [0.229, 0.224, 0.225]
//   postprocess:
//     softmax: {input: logits, output: probabilities}   # default input: the only suitable output
//     top_k: {input: probabilities, k: 5}   # default input: softmax's result, else the only output
//     nms: {boxes: boxes, scores: scores, format: xyxy, normalized: false, threshold: 0.25,
//           iou: 0.45, max: 100}
//
// docs/guides/transforms.md defines what each step computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::transform {

enum class Channels : std::uint8_t { kRgb, kBgr, kGrey };
enum class Filter : std::uint8_t { kBilinear, kNearest, kArea };
enum class BoxFormat : std::uint8_t {
  kXyxy,
  kXywh,
  kCxcywh
};  // corners; corner and size; centre and size

struct ImageStep {
  std::string input;  // "": the model's only input
  Channels channels = Channels::kRgb;
  std::optional<std::int64_t> width, height;
  Filter filter = Filter::kBilinear;
  std::string layout;  // "": by the input's shape
  double scale = 1;
  std::vector<double> mean;  // empty, one, or one per channel
  std::vector<double> std;

  std::size_t channel_count() const { return channels == Channels::kGrey ? 1 : 3; }
  friend bool operator==(const ImageStep&, const ImageStep&) = default;
};

struct SoftmaxStep {
  std::string input;  // "": the only suitable output
  std::string output = "probabilities";
  friend bool operator==(const SoftmaxStep&, const SoftmaxStep&) = default;
};

struct TopKStep {
  std::string input;
  std::int64_t k = 5;
  friend bool operator==(const TopKStep&, const TopKStep&) = default;
};

struct NmsStep {
  std::string boxes = "boxes";
  std::string scores = "scores";
  BoxFormat format = BoxFormat::kXyxy;
  bool normalized = false;  // coordinates are fractions, not pixels of the model's input
  double threshold = 0.25;  // boxes with lower scores are dropped
  double iou = 0.45;        // boxes that overlap a better one of their class by more are dropped
  std::int64_t max = 100;   // boxes per image
  friend bool operator==(const NmsStep&, const NmsStep&) = default;
};

struct Declaration {
  std::optional<ImageStep> image;
  std::optional<SoftmaxStep> softmax;
  std::optional<TopKStep> top_k;
  std::optional<NmsStep> nms;

  bool empty() const { return !image && !softmax && !top_k && !nms; }
  friend bool operator==(const Declaration&, const Declaration&) = default;
};

/// Reads the value of the key `preprocess` or `postprocess`. kInvalid: an unknown or wrong setting,
/// by path ("preprocess.image.layout must be …"). kUnsupported: a setting that is planned but not
/// implemented. On an error `out` is partly filled.
Status read_preprocess(const codec::Json& value, Declaration& out);
Status read_postprocess(const codec::Json& value, Declaration& out);

std::string_view to_string(Channels channels);
std::string_view to_string(Filter filter);
std::string_view to_string(BoxFormat format);

}  // namespace varda::transform
