// Discovery of a server's resources, with search by any name that a user types.
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
  bool preferred = true;                  // in the preferred version of its group
  std::vector<std::string> subresources;  // "status", "scale", "log"
  bool can(std::string_view verb) const;
};

/// All resources in a server's discovery. Immutable; thread-safe.
class Discovery {
 public:
  /// A group without an answer is left out, as in kubectl. Fails only if /api/v1 or /apis fails.
  static Result<Discovery> load(const Context& ctx, const Client& client);
  explicit Discovery(std::vector<ApiResource> resources) : resources_(std::move(resources)) {}

  /// Finds a resource by plural, singular, short name or kind, in upper or lower case. The group,
  /// or version and group, may follow after a dot: "pods", "po", "Deployment", "deployments.apps",
  /// "deployments.v1.apps", "im". kNotFound: the message names the command that lists resources.
  Result<ApiResource> find(std::string_view name) const;
  /// Resources of a category ("edgeai", "all").
  std::vector<ApiResource> category(std::string_view name) const;
  /// The resource of an object in a manifest. kNotFound: the server has no such kind.
  Result<ApiResource> of(std::string_view api_version, std::string_view kind) const;
  const std::vector<ApiResource>& all() const { return resources_; }

 private:
  std::vector<ApiResource> resources_;
};

}  // namespace varda::kube
