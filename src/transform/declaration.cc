#include "transform/declaration.h"

#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace varda::transform {
namespace {

using codec::Json;

constexpr std::int64_t kSideMax = 16384;
constexpr std::int64_t kResultsMax = 1000;

constexpr std::array<std::pair<std::string_view, Channels>, 3> kChannels = {
    {{"rgb", Channels::kRgb}, {"bgr", Channels::kBgr}, {"grey", Channels::kGrey}}};
constexpr std::array<std::pair<std::string_view, Filter>, 3> kFilters = {
    {{"bilinear", Filter::kBilinear}, {"nearest", Filter::kNearest}, {"area", Filter::kArea}}};
constexpr std::array<std::pair<std::string_view, BoxFormat>, 3> kFormats = {
    {{"xyxy", BoxFormat::kXyxy}, {"xywh", BoxFormat::kXywh}, {"cxcywh", BoxFormat::kCxcywh}}};
constexpr std::array<std::string_view, 6> kLayouts = {"NCHW", "NHWC", "NHW", "CHW", "HWC", "HW"};

Error invalid(const std::string& setting, const std::string& what) {
  return Error(Code::kInvalid, setting + " " + what);
}
Error unknown(const std::string& setting) {
  return Error(Code::kInvalid, "unknown setting " + setting);
}

Result<const Json::Object*> object(const Json& value, const std::string& setting) {
  if (!value.is_object()) return invalid(setting, "must be a mapping");
  return &value.as_object();
}

Result<std::string> name_of(const Json& value, const std::string& setting) {
  if (value.is_bool())
    return invalid(setting,
                   "must be a name: put it in quotes, because YAML reads it as true or false");
  if (!value.is_string() || value.as_string().empty()) return invalid(setting, "must be a name");
  return value.as_string();
}

Result<std::int64_t> whole(const Json& value, const std::string& setting, std::int64_t min,
                           std::int64_t max) {
  if (!value.is_integer() || value.as_integer() < min || value.as_integer() > max)
    return invalid(setting, "must be a whole number from " + std::to_string(min) + " to " +
                                std::to_string(max));
  return value.as_integer();
}

// Numbers must fit a float, since models compute with floats.
Result<double> number(const Json& value, const std::string& setting) {
  if (!value.is_number() || !std::isfinite(static_cast<float>(value.as_double())))
    return invalid(setting, "must be a number");
  return value.as_double();
}

Result<double> share(const Json& value, const std::string& setting) {
  if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 1))
    return invalid(setting, "must be a number from 0 to 1");
  return value.as_double();
}

template <typename T, std::size_t N>
Result<T> parse_choice(const Json& value, const std::string& setting,
                       const std::array<std::pair<std::string_view, T>, N>& choices) {
  std::string all;
  for (const auto& [text, meaning] : choices) {
    if (value.is_string() && value.as_string() == text) return meaning;
    all += (all.empty() ? "" : ", ") + std::string(text);
  }
  return invalid(setting, "must be one of " + all);
}

template <typename T, std::size_t N>
std::string_view text_of(T value, const std::array<std::pair<std::string_view, T>, N>& choices) {
  for (const auto& [text, meaning] : choices) {
    if (meaning == value) return text;
  }
  return "";
}

Result<std::vector<double>> numbers(const Json& value, const std::string& setting) {
  std::vector<double> out;
  if (value.is_number()) {
    TRY(const double one, number(value, setting));
    return std::vector<double>{one};
  }
  if (!value.is_array() || value.size() == 0 || value.size() > 3)
    return invalid(setting, "must be a list of one number a channel");
  for (const Json& item : value.as_array()) {
    TRY(const double one, number(item, setting));
    out.push_back(one);
  }
  return out;
}

Result<std::string> layout(const Json& value, const std::string& setting) {
  std::string all;
  for (const std::string_view known : kLayouts) {
    if (value.is_string() && value.as_string() == known) return std::string(known);
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  return invalid(setting, "must be one of " + all);
}

Status read_resize(const Json& value, ImageStep& out) {
  const std::string at = "preprocess.image.resize";
  TRY(const Json::Object* members, object(value, at));
  for (const auto& [name, item] : *members) {
    const std::string setting = at + "." + name;
    if (name == "width") {
      TRY(out.width, whole(item, setting, 1, kSideMax));
    } else if (name == "height") {
      TRY(out.height, whole(item, setting, 1, kSideMax));
    } else if (name == "filter") {
      TRY(out.filter, parse_choice(item, setting, kFilters));
    } else if (name == "fit") {
      // Reserved for letterboxing: a fit that keeps proportions must also be undone in the boxes.
      if (item.is_string() && item.as_string() == "letterbox") {
        return Error(Code::kUnsupported, setting + ": letterbox is not supported; use stretch");
      }
      if (!item.is_string() || item.as_string() != "stretch")
        return invalid(setting, "must be stretch");
    } else {
      return unknown(setting);
    }
  }
  if (out.width.has_value() != out.height.has_value())
    return invalid(at, "needs both width and height, or neither");
  return {};
}

Status read_image(const Json& value, ImageStep& out) {
  const std::string at = "preprocess.image";
  TRY(const Json::Object* members, object(value, at));
  for (const auto& [name, item] : *members) {
    const std::string setting = at + "." + name;
    if (name == "channels") {
      TRY(out.channels, parse_choice(item, setting, kChannels));
    } else if (name == "resize") {
      TRY_VOID(read_resize(item, out));
    } else if (name == "layout") {
      TRY(out.layout, layout(item, setting));
    } else if (name == "scale") {
      TRY(out.scale, number(item, setting));
      if (out.scale == 0) return invalid(setting, "must not be 0");
    } else if (name == "mean") {
      TRY(out.mean, numbers(item, setting));
    } else if (name == "std") {
      TRY(out.std, numbers(item, setting));
    } else {
      return unknown(setting);
    }
  }
  for (const auto& [setting, list] : {std::pair{"mean", &out.mean}, std::pair{"std", &out.std}}) {
    if (list->size() > 1 && list->size() != out.channel_count()) {
      return invalid(at + "." + setting, "has " + std::to_string(list->size()) +
                                             " numbers, channels " +
                                             std::string(to_string(out.channels)) + " are " +
                                             std::to_string(out.channel_count()));
    }
  }
  for (const double divisor : out.std) {
    if (std::abs(divisor) < 1e-12) return invalid(at + ".std", "must not be 0");
  }
  return {};
}

Status read_softmax(const Json& value, SoftmaxStep& out) {
  const std::string at = "postprocess.softmax";
  TRY(const Json::Object* members, object(value, at));
  for (const auto& [name, item] : *members) {
    const std::string setting = at + "." + name;
    if (name == "input") {
      TRY(out.input, name_of(item, setting));
    } else if (name == "output") {
      TRY(out.output, name_of(item, setting));
    } else {
      return unknown(setting);
    }
  }
  return {};
}

Status read_top_k(const Json& value, TopKStep& out) {
  const std::string at = "postprocess.top_k";
  TRY(const Json::Object* members, object(value, at));
  for (const auto& [name, item] : *members) {
    const std::string setting = at + "." + name;
    if (name == "input") {
      TRY(out.input, name_of(item, setting));
    } else if (name == "k") {
      TRY(out.k, whole(item, setting, 1, kResultsMax));
    } else {
      return unknown(setting);
    }
  }
  return {};
}

Status read_nms(const Json& value, NmsStep& out) {
  const std::string at = "postprocess.nms";
  TRY(const Json::Object* members, object(value, at));
  for (const auto& [name, item] : *members) {
    const std::string setting = at + "." + name;
    if (name == "boxes") {
      TRY(out.boxes, name_of(item, setting));
    } else if (name == "scores") {
      TRY(out.scores, name_of(item, setting));
    } else if (name == "format") {
      TRY(out.format, parse_choice(item, setting, kFormats));
    } else if (name == "normalized") {
      if (!item.is_bool()) return invalid(setting, "must be true or false");
      out.normalized = item.as_bool();
    } else if (name == "threshold") {
      TRY(out.threshold, share(item, setting));
    } else if (name == "iou") {
      TRY(out.iou, share(item, setting));
    } else if (name == "max") {
      TRY(out.max, whole(item, setting, 1, kResultsMax));
    } else {
      return unknown(setting);
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(Channels channels) { return text_of(channels, kChannels); }
std::string_view to_string(Filter filter) { return text_of(filter, kFilters); }
std::string_view to_string(BoxFormat format) { return text_of(format, kFormats); }

Status read_preprocess(const Json& value, Declaration& out) {
  TRY(const Json::Object* members, object(value, "preprocess"));
  ImageStep image;
  bool has_image = false;
  for (const auto& [name, item] : *members) {
    if (name == "input") {
      TRY(image.input, name_of(item, "preprocess.input"));
    } else if (name == "image") {
      TRY_VOID(read_image(item, image));
      has_image = true;
    } else {
      return unknown("preprocess." + name);
    }
  }
  if (!has_image)
    return invalid("preprocess", "must have image, which declares how images become tensors");
  out.image = std::move(image);
  return {};
}

Status read_postprocess(const Json& value, Declaration& out) {
  TRY(const Json::Object* members, object(value, "postprocess"));
  for (const auto& [name, item] : *members) {
    if (name == "softmax") {
      TRY_VOID(read_softmax(item, out.softmax.emplace()));
    } else if (name == "top_k") {
      TRY_VOID(read_top_k(item, out.top_k.emplace()));
    } else if (name == "nms") {
      TRY_VOID(read_nms(item, out.nms.emplace()));
    } else if (name == "anchors") {
      return Error(Code::kUnsupported,
                   "postprocess.anchors: anchors are not supported; export the model so that its "
                   "outputs are boxes");
    } else if (name == "labels") {
      return invalid(
          "postprocess.labels",
          "is not a step: set the member labels of model.yaml to the file of class names");
    } else {
      return unknown("postprocess." + name);
    }
  }
  if (!out.softmax && !out.top_k && !out.nms)
    return invalid("postprocess", "needs one of softmax, top_k, nms");
  // Both produce labels and scores.
  if (out.top_k && out.nms) return invalid("postprocess", "must not have both top_k and nms");
  return {};
}

}  // namespace varda::transform
