#include "relayed_blobs.h"

#include <gtest/gtest.h>

#include "net/http.h"
#include "replica/snapshot.h"

namespace varda::app {
namespace relayed_blobs_test {

using codec::Sha256;

std::string hex(const char* name) { return Sha256::of(name).hex(); }

TEST(RelayedBlobs, SnapshotsOfRelayedSharesAndCopiesStay) {
  const std::string text =
      R"({"spec": {"shares": [{"key": "a", "relay": true}, {"key": "b"}],
              "replicas": [{"key": "c"}, {"key": "d"}]},
    "status": {"shares": [{"key": "a", "snapshot": ")" +
      hex("new") + R"(", "relayed": ")" + hex("old") + R"("}, {"key": "b", "snapshot": ")" +
      hex("direct") + R"("}], "replicas": [{"key": "c", "relay": true, "snapshot": ")" +
      hex("copy") + R"("}, {"key": "d", "snapshot": ")" + hex("other") + R"("},
              {"key": "unwanted", "relay": true, "snapshot": ")" +
      hex("unwanted") + R"("}]}})";
  std::set<Sha256> found;
  add_relayed_snapshots(codec::parse_json(text).value(), found);
  EXPECT_EQ(found, (std::set{Sha256::of("new"), Sha256::of("old"), Sha256::of("copy")}));
  add_relayed_snapshots(codec::Json::object(), found);
  EXPECT_EQ(found.size(), 3u);
}

TEST(RelayedBlobs, BlocksComeFromTheStoredSnapshots) {
  const replica::Snapshot snapshot{
      .block_bytes = 1024,
      .files = {{.path = "a", .size = 1500, .blocks = {Sha256::of("1"), Sha256::of("2")}},
                {.path = "b", .size = 3, .blocks = {Sha256::of("1")}}}};
  const std::string encoded = snapshot.encode();
  int status = 206;
  const auto http = net::loopback(net::inline_handler([&](const net::Request& request) {
    net::Response out{.status = 404, .headers = {}, .body = ""};
    if (!request.path().ends_with(snapshot.id().hex())) return out;
    out.status = status;
    out.headers.add("Content-Range", "bytes 0-" + std::to_string(encoded.size() - 1) + "/" +
                                         std::to_string(encoded.size()));
    out.body = encoded;
    return out;
  }));
  const auto found = [&] {
    return blocks_of(Context::background(), *http, {.url = "", .token = ""},
                     {snapshot.id(), Sha256::of("missing")});
  };
  EXPECT_EQ(found().value(), (std::set{Sha256::of("1"), Sha256::of("2")}));
  for (const int unusable : {404, 416}) {
    status = unusable;
    EXPECT_TRUE(found().value().empty()) << "a node named a blob that is no snapshot";
  }
  status = 503;
  EXPECT_FALSE(found().ok()) << "then nothing is collected";
}

}  // namespace relayed_blobs_test
}  // namespace varda::app
