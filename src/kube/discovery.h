// What the server offers: finds a resource by any name a person types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/client.h"

namespace varda::kube {

struct ApiResource {
  Resource resource;
  std::string singular;
  std::vector<std::string> short_names, categories, verbs;
  bool preferred = true;                  // of its group's preferred version
  std::vector<std::string> subresources;  // "status", "scale", "log"
  bool can(std::string_view verb) const;
};

/// All resources of a server, as its discovery tells. Immutable; thread-safe.
class Discovery {
 public:
  /// A group that fails to answer is left out (as kubectl does), unless nothing answers.
  static Result<Discovery> load(const Context& ctx, const Client& client);
  explicit Discovery(std::vector<ApiResource> resources) : resources_(std::move(resources)) {}

  /// By plural, singular, short name or kind, any case, optionally with group or version and group behind dots:
  /// "pods", "po", "Deployment", "deployments.apps", "deployments.v1.apps", "im". kNotFound: says what to look at.
  Result<ApiResource> find(std::string_view name) const;
  /// Resources of a category ("edgeai", "all").
  std::vector<ApiResource> category(std::string_view name) const;
  /// For an object of a manifest. kNotFound: no such kind here.
  Result<ApiResource> of(std::string_view api_version, std::string_view kind) const;
  const std::vector<ApiResource>& all() const { return resources_; }

 private:
  std::vector<ApiResource> resources_;
};

}  // namespace varda::kube
