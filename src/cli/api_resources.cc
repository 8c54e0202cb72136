#include <algorithm>

#include "base/text.h"
#include "cli/verbs.h"

namespace varda::cli {

Status api_resources(const Context& ctx, Session& session) {
  TRY(const kube::Discovery* discovery, session.discovery(ctx));
  std::vector<kube::ApiResource> all = discovery->all();
  std::sort(all.begin(), all.end(), [](const kube::ApiResource& a, const kube::ApiResource& b) {
    return std::tie(a.resource.group, a.resource.plural) <
           std::tie(b.resource.group, b.resource.plural);
  });
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"}};
  for (const kube::ApiResource& one : all) {
    if (!one.preferred || !one.can("get")) continue;
    const std::string names = join(one.short_names, ",");
    const meta::Resource& r = one.resource;
    rows.push_back({r.plural, names, r.group.empty() ? r.version : r.group + "/" + r.version,
                    r.namespaced ? "true" : "false", r.kind});
  }
  session.out(align(rows));
  return {};
}

}  // namespace varda::cli
