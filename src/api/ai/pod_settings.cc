#include "api/ai/pod_settings.h"

#include <memory>
#include <utility>

#include "api/ai/describe_pod_settings.h"

namespace varda::api {

namespace {

// The common quantities. The full grammar also has exponents and suffixes that amounts of nodes do
// not need.
constexpr std::string_view kQuantity = "^[0-9]{1,15}([.][0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$";

}  // namespace

template <>
const ValueOps& ops_of<Quantities>() {
  static constexpr ValueOps ops{
      [] {
        Schema amount;
        amount.type = Schema::Type::kIntOrString;
        amount.pattern = std::string(kQuantity);
        amount.length_max = 32;
        amount.minimum = 0;
        Schema schema;
        schema.type = Schema::Type::kObject;
        schema.additional = std::make_shared<Schema>(std::move(amount));
        return schema;
      },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_object()) return ReadError{"", "must be an object"};
        auto& values = static_cast<Quantities*>(value)->values;
        values.clear();
        for (const auto& [name, amount] : json.as_object()) {
          if (!amount.is_string() && !amount.is_integer())
            return ReadError{"." + name, "must be a number or a string"};
          values[name] =
              amount.is_string() ? amount.as_string() : std::to_string(amount.as_integer());
        }
        return {};
      },
      [](const void* value) {
        Json out = Json::object();
        for (const auto& [name, amount] : static_cast<const Quantities*>(value)->values)
          out.set(name, amount);
        return out;
      },
      [](const void* value) { return static_cast<const Quantities*>(value)->values.empty(); },
  };
  return ops;
}

void ModelResources::describe(Type<ModelResources>& t) {
  t.doc("Amounts by resource name: cpu, memory, nvidia.com/gpu ...");
  t.field("requests", &ModelResources::requests,
          "Amounts that must be free on the node: {cpu: 500m, memory: 1Gi}.")
      .items_max(16);
  t.field("limits", &ModelResources::limits, "Maximum amounts that the server may use.")
      .items_max(16);
}

void ImagePullSecret::describe(Type<ImagePullSecret>& t) {
  t.doc("One Secret.");
  t.field("name", &ImagePullSecret::name, "Name of the Secret.")
      .required()
      .length(1, 253)
      .pattern("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$");
  t.keep_unknown(&ImagePullSecret::unknown);
}

void PodSettings::describe(Type<PodSettings>& t) { describe_pod_settings(t); }

Json PodSettings::settings_to_json() const { return write_part(*this); }

Rule reserved_variables() {
  // The servers listen on POD_IP. With the other one, a server of the edge layer would end on a
  // version that does not load, instead of serving the former version.
  return rules::each_differs("env", "name", {"POD_IP", "VARDA_SERVE_END_ON_LOAD_FAILURE"});
}

}  // namespace varda::api
