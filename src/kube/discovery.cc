#include "kube/discovery.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace varda::kube {
namespace {

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.as_array()) out.push_back(item.as_string());
  return out;
}

bool has(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

/// Reads the resources of one APIResourceList. "pods/log" is a subresource of "pods".
void read_list(const Json& list, std::string_view group, std::string_view version, bool preferred,
               std::vector<ApiResource>& out) {
  const std::size_t first = out.size();
  std::vector<std::pair<std::string, std::string>> subresources;
  for (const Json& item : list["resources"].as_array()) {
    const std::string& name = item["name"].as_string();
    if (const auto slash = name.find('/'); slash != std::string::npos) {
      subresources.emplace_back(name.substr(0, slash), name.substr(slash + 1));
      continue;
    }
    ApiResource resource;
    resource.resource = {.group = std::string(group),
                         .version = std::string(version),
                         .kind = item["kind"].as_string(),
                         .plural = name,
                         .namespaced = item["namespaced"].as_bool()};
    resource.singular = item["singularName"].as_string();
    if (resource.singular.empty()) resource.singular = lower(resource.resource.kind);
    resource.short_names = strings(item["shortNames"]);
    resource.categories = strings(item["categories"]);
    resource.verbs = strings(item["verbs"]);
    resource.preferred = preferred;
    out.push_back(std::move(resource));
  }
  for (auto& [name, subresource] : subresources) {
    for (std::size_t i = first; i < out.size(); ++i) {
      if (out[i].resource.plural == name) out[i].subresources.push_back(std::move(subresource));
    }
  }
}

}  // namespace

bool ApiResource::can(std::string_view verb) const { return has(verbs, verb); }

Result<Discovery> Discovery::load(const Context& ctx, const Client& client) {
  std::vector<ApiResource> out;
  TRY(const Json core, client.json(ctx, "GET", "/api/v1"));
  read_list(core, "", "v1", true, out);
  TRY(const Json groups, client.json(ctx, "GET", "/apis"));
  for (const Json& group : groups["groups"].as_array()) {
    const std::string& name = group["name"].as_string();
    const std::string& preferred = group["preferredVersion"]["version"].as_string();
    for (const Json& version : group["versions"].as_array()) {
      const std::string& text = version["version"].as_string();
      const auto list = client.json(ctx, "GET", "/apis/" + name + "/" + text);
      TRY_VOID(ctx.check());
      if (list.ok()) read_list(*list, name, text, text == preferred, out);
    }
  }
  // Core and preferred versions first: the first match of a name wins.
  std::stable_sort(out.begin(), out.end(), [](const ApiResource& a, const ApiResource& b) {
    return a.preferred > b.preferred;
  });
  return Discovery(std::move(out));
}

Result<ApiResource> Discovery::find(std::string_view name) const {
  const std::string text = lower(name);
  const auto dot = text.find('.');
  const std::string head = text.substr(0, dot);
  const std::string tail = dot == std::string::npos ? "" : text.substr(dot + 1);
  const auto in_group = [&](const Resource& resource) {
    if (tail.empty() || resource.group == tail) return true;
    return tail == (resource.group.empty() ? resource.version
                                           : resource.version + "." + resource.group) ||
           tail == resource.version + ".";
  };
  // Full names win over short names, in every order of groups.
  for (const bool short_names : {false, true}) {
    for (const ApiResource& candidate : resources_) {
      const bool named = short_names
                             ? has(candidate.short_names, head)
                             : candidate.resource.plural == head || candidate.singular == head ||
                                   lower(candidate.resource.kind) == head;
      if (named && in_group(candidate.resource)) return candidate;
    }
  }
  return Error(Code::kNotFound, "the server doesn't have a resource type \"" + std::string(name) +
                                    "\" (list them with: varda api-resources)");
}

std::vector<ApiResource> Discovery::category(std::string_view name) const {
  std::vector<ApiResource> out;
  for (const ApiResource& candidate : resources_) {
    if (candidate.preferred && has(candidate.categories, name)) out.push_back(candidate);
  }
  return out;
}

Result<ApiResource> Discovery::of(std::string_view api_version, std::string_view kind) const {
  for (const ApiResource& candidate : resources_) {
    if (candidate.resource.kind == kind && candidate.resource.api_version() == api_version)
      return candidate;
  }
  return Error(Code::kNotFound, "no matches for kind \"" + std::string(kind) + "\" in version \"" +
                                    std::string(api_version) + "\"");
}

}  // namespace varda::kube
