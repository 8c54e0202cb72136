#include "hosting/pod_settings.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "meta/quantity.h"

namespace varda::hosting {

namespace {

using codec::Json;

std::string canonical(const std::string& amount) {
  return meta::canonical_quantity(amount).value_or(amount);
}

// Copies the settings in the API server's form, without members that the API server would drop or
// rewrite. Otherwise an object would differ from the wanted one at every reconcile, and be written
// forever.
api::PodSettings in_server_form(const api::PodSettings& settings) {
  api::PodSettings out = settings;
  for (api::Quantities* amounts : {&out.resources.requests, &out.resources.limits}) {
    for (auto& [name, amount] : amounts->values) amount = canonical(amount);
  }
  for (api::EnvVar& variable : out.env) {
    variable.unknown = {};
    Json* const resource = variable.value_from.find("resourceFieldRef");
    Json* const divisor = resource == nullptr ? nullptr : resource->find("divisor");
    if (divisor == nullptr) continue;
    if (divisor->is_integer()) *divisor = std::to_string(divisor->as_integer());
    if (divisor->is_string()) *divisor = canonical(divisor->as_string());
  }
  for (api::ImagePullSecret& secret : out.image_pull_secrets) secret.unknown = {};
  for (api::Toleration& toleration : out.tolerations) toleration.unknown = {};
  return out;
}

bool names(const std::vector<api::EnvVar>& env, const std::string& name) {
  return std::any_of(env.begin(), env.end(),
                     [&](const api::EnvVar& variable) { return variable.name == name; });
}

}  // namespace

void add_settings(const api::PodSettings& settings, api::PodSpec& pod) {
  api::PodSettings added = in_server_form(settings);
  const Json members = added.settings_to_json();
  for (api::Container& container : pod.containers) {
    container.resources = members["resources"];
    // Later variables may refer to earlier ones, so the user's may refer to Varda's.
    const std::vector<api::EnvVar> own = container.env;
    for (const api::EnvVar& variable : added.env) {
      if (!names(own, variable.name)) container.env.push_back(variable);
    }
  }
  for (api::Toleration& toleration : added.tolerations)
    pod.tolerations.push_back(std::move(toleration));
  for (const char* member : {"imagePullSecrets", "priorityClassName"}) {
    if (members.contains(member)) pod.unknown.set(member, members[member]);
  }
}

Json requested_settings(const api::PodSettings& settings) {
  return in_server_form(settings).settings_to_json();
}

}  // namespace varda::hosting
