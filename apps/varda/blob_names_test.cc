#include "blob_names.h"

#include <gtest/gtest.h>

#include "codec/json.h"
#include "net/client.h"
#include "net/http.h"

namespace varda::app {
namespace blob_names_test {

using codec::Json;
using codec::Sha256;

TEST(BlobNames, DigestsAreRunsOf64HexDigits) {
  const std::string a = Sha256::of("a").hex(), b = Sha256::of("b").hex();
  EXPECT_EQ(digests_in("{\"url\":\"http://x/sha256:" + a + "\",\"sha256\":\"" + b + "\"}"),
            (std::set<Sha256>{Sha256::of("a"), Sha256::of("b")}));
  EXPECT_EQ(digests_in(a), std::set<Sha256>{Sha256::of("a")});
  EXPECT_TRUE(digests_in(a + "0 " + a.substr(1) + " " + std::string(64, 'A')).empty());
  EXPECT_TRUE(digests_in("").empty());
}

TEST(BlobNames, HolderDependsOnClusterAndNamespaces) {
  const std::string all = holder_name("https://10.96.0.1:443", "PEM", {});
  EXPECT_EQ(all.size(), 24u);
  EXPECT_TRUE(all.starts_with("cluster-"));
  EXPECT_EQ(holder_name("https://10.96.0.1:443", "PEM", {"a", "b"}),
            holder_name("https://10.96.0.1:443", "PEM", {"b", "a", "b"}));
  const std::set<std::string> different = {all, holder_name("https://10.96.0.1:443", "OTHER", {}),
                                           holder_name("https://10.96.0.2:443", "PEM", {}),
                                           holder_name("https://10.96.0.1:443", "PEM", {"a"})};
  EXPECT_EQ(different.size(), 4u);
}

/// An API server with one Model in each of two namespaces. Other lists are empty.
net::Handler two_models() {
  return net::inline_handler([](const net::Request& request) {
    const std::string path(request.path());
    Json items = Json::array();
    for (const char* ns : {"a", "b"}) {
      const bool asked = path.ends_with("/edgeai.io/v1alpha1/models") ||
                         path.ends_with("/namespaces/" + std::string(ns) + "/models");
      if (!asked) continue;
      Json item = Json::object({{"metadata", Json::object({{"name", "m"}, {"namespace", ns}})}});
      item.set("spec",
               Json::object({{"modelUrl", "http://r/v1/blobs/sha256:" + Sha256::of(ns).hex()}}));
      items.push_back(std::move(item));
    }
    return net::Response{.status = 200,
                         .body = codec::write_json(
                             Json::object({{"metadata", Json::object({{"resourceVersion", "1"}})},
                                           {"items", std::move(items)}}))};
  });
}

TEST(BlobNames, UrlsOfModelsAreFoundInTheChosenNamespaces) {
  const kube::Client client(net::loopback(two_models()), {});
  const auto http = net::make_client({});
  const auto named = [&](const std::vector<std::string>& namespaces) {
    return named_blobs(Context::background(), client, namespaces, *http, {.url = "", .token = ""})
        .value();
  };
  EXPECT_EQ(named({}), (std::set<Sha256>{Sha256::of("a"), Sha256::of("b")}));
  EXPECT_EQ(named({"b"}), std::set<Sha256>{Sha256::of("b")});
}

TEST(BlobNames, FailedListNamesNothing) {
  const kube::Client client(net::loopback(net::inline_handler([](const net::Request& request) {
                              const bool models = request.path().ends_with("/models");
                              return net::Response{.status = models ? 403 : 200,
                                                   .body = "{\"items\":[]}"};
                            })),
                            {});
  const auto http = net::make_client({});
  EXPECT_FALSE(
      named_blobs(Context::background(), client, {}, *http, {.url = "", .token = ""}).ok());
}

}  // namespace blob_names_test
}  // namespace varda::app
