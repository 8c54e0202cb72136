// What a model's model.yaml declares to stand before and after its run.
//
//   preprocess:
//     input: images              # the model's input that images become; default: its only input
//     image:
//       channels: rgb            # rgb, bgr, grey
//       resize: {width: 224, height: 224, filter: bilinear}   # default: the size that the input has; bilinear, nearest, area
//       layout: NCHW             # NCHW, NHWC, NHW, CHW, HWC, HW; default: what the input's shape says
//       scale: 0.00392157        # of a channel's values 0 to 255: (value * scale - mean) / std
//       mean: [0.485, 0.456, 0.406]   # one number a channel, in the order of `channels`, or one for all
//       std: [0.229, 0.224, 0.225]
//   postprocess:
//     softmax: {input: logits, output: probabilities}   # default input: the only output that can be it
//     top_k: {input: probabilities, k: 5}                # default input: what softmax gives, else the only output
//     nms: {boxes: boxes, scores: scores, format: xyxy, normalized: false, threshold: 0.25, iou: 0.45, max: 100}
//
// docs/guides/transforms.md says what each step computes.
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
enum class BoxFormat : std::uint8_t { kXyxy, kXywh, kCxcywh };  // corners; corner and size; centre and size

struct ImageStep {
  std::string input;  // "": the model's only one
  Channels channels = Channels::kRgb;
  std::optional<std::int64_t> width, height;
  Filter filter = Filter::kBilinear;
  std::string layout;  // "": by the input's shape
  double scale = 1;
  std::vector<double> mean;  // none, one, or one a channel
  std::vector<double> std;

  std::size_t channel_count() const { return channels == Channels::kGrey ? 1 : 3; }
  friend bool operator==(const ImageStep&, const ImageStep&) = default;
};

struct SoftmaxStep {
  std::string input;  // "": the only output that can be it
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
  bool normalized = false;  // coordinates are shares of the image's width and height, not pixels of the model's input
  double threshold = 0.25;  // boxes that score less are dropped
  double iou = 0.45;        // so are those that overlap a better one of their class by more
  std::int64_t max = 100;   // boxes of an image
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

/// The value of the key `preprocess`, of `postprocess`. kInvalid: what is unknown or wrong, by its path ("preprocess.image.layout
/// must be …"); kUnsupported: what is planned and not there yet. `out` is then half read.
Status read_preprocess(const codec::Json& value, Declaration& out);
Status read_postprocess(const codec::Json& value, Declaration& out);

std::string_view to_string(Channels channels);
std::string_view to_string(Filter filter);
std::string_view to_string(BoxFormat format);

}  // namespace varda::transform
