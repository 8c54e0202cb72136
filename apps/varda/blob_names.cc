#include "blob_names.h"

#include <chrono>
#include <utility>

#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "base/log.h"
#include "codec/json.h"
#include "relayed_blobs.h"

namespace varda::app {
namespace {

using codec::Json;
using codec::Sha256;

constexpr std::chrono::milliseconds kReportEvery = std::chrono::minutes(10),
                                    kRetryAfter = std::chrono::minutes(1);

}  // namespace

std::set<Sha256> digests_in(std::string_view text) {
  constexpr std::size_t kDigits = 64;
  std::set<Sha256> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool hex = i < text.size() &&
                     ((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'));
    if (hex) continue;
    if (i - begin == kDigits) {
      const auto digest = Sha256::parse(text.substr(begin, kDigits));
      if (digest.ok()) out.insert(*digest);
    }
    begin = i + 1;
  }
  return out;
}

Result<std::set<Sha256>> named_blobs(const Context& ctx, const kube::Client& client,
                                     const std::vector<std::string>& namespaces,
                                     net::HttpClient& http, const registry::Target& registry) {
  std::set<Sha256> out, snapshots;
  for (const api::Kind* kind : api::kinds()) {
    const bool nodes = kind == &api::EdgeNode::kind();
    std::vector<std::string> places = namespaces;
    if (places.empty() || !kind->resource.namespaced) places = {""};
    for (const std::string& ns : places) {
      TRY_VOID(client.list_pages(ctx, kind->resource, {.ns = ns, .limit = 100},
                                 [&](std::size_t, const kube::List& page) {
                                   for (const Json& object : page.items) {
                                     out.merge(digests_in(codec::write_json(object)));
                                     if (nodes) add_relayed_snapshots(object, snapshots);
                                   }
                                 }));
    }
  }
  TRY(auto blocks, blocks_of(ctx, http, registry, snapshots));
  out.merge(blocks);
  return out;
}

std::string holder_name(const std::string& server, const std::string& authority_pem,
                        const std::vector<std::string>& namespaces) {
  std::string all = server + "\n" + authority_pem;
  for (const std::string& ns : std::set<std::string>(namespaces.begin(), namespaces.end()))
    all += "\n" + ns;
  return "cluster-" + Sha256::of(all).hex().substr(0, 16);
}

void report_named_blobs(const Context& ctx, const kube::Client& client,
                        const std::vector<std::string>& namespaces, net::HttpClient& http,
                        const registry::Target& registry, const std::string& holder) {
  const auto report = [&]() -> Status {
    TRY(const auto names, named_blobs(ctx, client, namespaces, http, registry));
    return registry::put_names(ctx, http, registry, holder, names);
  };
  while (!ctx.done()) {
    const Status reported = report();
    if (!reported.ok() && !ctx.done()) {
      log::warn("the registry does not learn which files objects name; it removes others",
                {{"registry", registry.url}, {"error", reported.error()}});
    }
    (void)ctx.sleep_for(reported.ok() ? kReportEvery : kRetryAfter);
  }
}

}  // namespace varda::app
