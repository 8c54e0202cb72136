// The reference of an InferenceModel to a Model of edgeai.io or sedna.io: by name, or by a selector
// that chooses the best Model.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "codec/json.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

/// Chooses the Model with the best value of a metric. All other members limit the choice.
struct ModelSelector {
  static constexpr std::string_view kMax = "max", kMin = "min";

  std::string task;                           // "": any
  std::map<std::string, std::string> labels;  // of metadata.labels; empty: any
  std::string metric;                         // key in status.metrics
  std::optional<double> at_least, at_most;    // limits of the metric
  std::string order{kMax};
  Json unknown;
  friend bool operator==(const ModelSelector&, const ModelSelector&) = default;
  static void describe(Type<ModelSelector>& t);
};

/// Either `name` or `selector` is set. The Model is in the namespace of the InferenceModel.
struct ModelRef {
  std::string name;
  std::string group;    // edgeai.io, sedna.io; "": the group that has the name
  std::string version;  // "": the present version of the Model
  std::optional<ModelSelector> selector;
  Json unknown;
  friend bool operator==(const ModelRef&, const ModelRef&) = default;
  static void describe(Type<ModelRef>& t);
};

}  // namespace varda::api
