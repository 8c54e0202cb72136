// Files of nodes on their way through the gateway to a registry.
#include "gateway/uploads.h"

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "gateway/gateway.h"
#include "gateway/testing/cloud.h"

namespace varda::gateway {
namespace uploads_test {

using codec::Json;
using testing::Cloud;
using testing::peer_of;

const std::string kBlob = "/v1/blobs/sha256:" + std::string(64, 'a');
constexpr const char* kWorld = R"(
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: edge0}
spec:
  workers:
  - {key: default/eval, uid: u1, owner: JointInferenceService/pets}
  - {key: default/train, uid: u2, owner: JointInferenceService/pets, uploads: {maxBytes: 3000000}}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: edge1}
spec:
  workers:
  - {key: default/eval, uid: u1, owner: JointInferenceService/pets}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: line0}
spec:
  shares:
  - {key: datasets.edgeai.io/default/other, path: /data/other, nodes: [line1]}
  - {key: datasets.edgeai.io/default/faces, path: /data/faces, nodes: [line1], relay: true}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: line1}
spec:
  replicas:
  - {key: datasets.edgeai.io/default/faces, uid: u1, relay: true}
)";

/// Records requests and gives one answer.
class FakeRegistry {
 public:
  net::Handler handler() {
    return net::inline_handler([this](const net::Request& request) {
      const MutexLock lock(mutex_);
      requests_.push_back(request);
      return net::Response{.status = status, .headers = headers, .body = body};
    });
  }
  std::vector<net::Request> requests() {
    const MutexLock lock(mutex_);
    return requests_;
  }
  int status = 201;
  net::Headers headers;
  std::string body = "{}\n";

 private:
  Mutex mutex_;
  std::vector<net::Request> requests_ GUARDED_BY(mutex_);
};

class GatewayUploads : public ::testing::Test {
 protected:
  GatewayUploads() {
    cloud_.apply(kWorld);
    Gateway::Options options;
    options.registry = to_registry_.get();
    options.uploads.registry = {.url = "", .token = "secret"};
    cloud_.start_gateway(std::move(options));
  }
  net::HttpClient::Answer send(const std::string& node, std::string method, std::string body = "",
                               net::Headers headers = {}, std::string target = kBlob) {
    return cloud_.transport(node)
        ->call(Context::background().with_timeout(std::chrono::seconds(60)),
               {.method = std::move(method),
                .url = std::move(target),
                .headers = std::move(headers),
                .body = std::move(body)})
        .value();
  }
  static std::string message(const net::HttpClient::Answer& answer) {
    return codec::parse_json(answer.body).value_or(Json())["message"].as_string();
  }

  FakeRegistry registry_;
  std::unique_ptr<net::HttpClient> to_registry_ = net::loopback(registry_.handler());
  Cloud cloud_;
};

TEST_F(GatewayUploads, PieceReachesTheRegistryWithTheGatewaysToken) {
  registry_.status = 202;
  registry_.headers = {{"Upload-Offset", "5"}};
  const auto answer = send("edge0", "PUT", "hello",
                           {{"Content-Range", "bytes 0-4/9"}, {"Authorization", "Bearer mine"}});
  EXPECT_EQ(answer.status, 202);
  EXPECT_EQ(answer.headers.find("Upload-Offset"), "5");
  const auto requests = registry_.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].method, "PUT");
  EXPECT_EQ(requests[0].target, kBlob);
  EXPECT_EQ(requests[0].body, "hello");
  EXPECT_EQ(requests[0].headers.find("Content-Range"), "bytes 0-4/9");
  EXPECT_EQ(requests[0].headers.find("Authorization"), "Bearer secret");
}

TEST_F(GatewayUploads, HeadReturnsTheOffset) {
  registry_.status = 404;
  registry_.headers = {{"Upload-Offset", "7"}};
  const auto answer = send("edge0", "HEAD");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.headers.find("Upload-Offset"), "7");
}

TEST_F(GatewayUploads, CopyReachesTheRegistry) {
  registry_.status = 202;
  const std::string copy = "sha256:" + std::string(64, 'b') + " bytes 5-8";
  const net::Headers range{{"Content-Range", "bytes 0-4/9"}};
  net::Headers headers = range;
  headers.add("Upload-Copy", copy);
  EXPECT_EQ(send("edge0", "PUT", "hello", headers).status, 202);
  EXPECT_EQ(registry_.requests().at(0).headers.find("Upload-Copy"), copy);
  headers = range;
  headers.add("Upload-Copy", "sha256:b bytes 5-8");
  EXPECT_EQ(send("edge0", "PUT", "hello", headers).status, 400);
  EXPECT_EQ(registry_.requests().size(), 1u);
}

TEST_F(GatewayUploads, ListOfChunksIsReadInPieces) {
  registry_.status = 206;
  registry_.headers = {{"Content-Range", "bytes 0-2/9"}};
  registry_.body = "abc";
  const std::string list = kBlob + ".chunks";
  const auto answer = send("edge0", "GET", "", {{"Range", "bytes=0-1048575"}}, list);
  EXPECT_EQ(answer.status, 206);
  EXPECT_EQ(answer.body, "abc");
  EXPECT_EQ(answer.headers.find("Content-Range"), "bytes 0-2/9");
  const auto requests = registry_.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].target, list);
  EXPECT_EQ(requests[0].headers.find("Range"), "bytes=0-1048575");
  EXPECT_EQ(requests[0].headers.find("Authorization"), "Bearer secret");
  for (const char* range : {"", "bytes=0-", "bytes=0-1048576", "bytes=-5", "bytes=5-4",
                            "bytes=0-18446744073709551615", "bytes=0-1,2-3"})
    EXPECT_EQ(send("edge0", "GET", "", {{"Range", range}}, list).status, 416) << range;
  EXPECT_EQ(send("edge0", "PUT", "x", {}, list).status, 405);
  EXPECT_EQ(send("edge0", "GET", "", {{"Range", "bytes=0-9"}}, kBlob + "/a.chunks").status, 404);
  EXPECT_EQ(send("edge1", "GET", "", {{"Range", "bytes=0-9"}}, list).status, 403);
  EXPECT_EQ(registry_.requests().size(), 1u);
}

TEST_F(GatewayUploads, NodeWithoutUploadsInItsWorkListGets403) {
  for (const char* node : {"edge1", "edge2"}) {
    for (const char* method : {"PUT", "HEAD"}) EXPECT_EQ(send(node, method).status, 403) << node;
  }
  EXPECT_EQ(message(send("edge1", "PUT", "x")),
            "node \"edge1\" may not upload files: no worker of its work list has uploads, and no "
            "share is relayed");
  EXPECT_TRUE(registry_.requests().empty());
}

TEST_F(GatewayUploads, FileLargerThanTheWorkListAllowsGets413) {
  EXPECT_EQ(send("edge0", "PUT", "hello", {{"Content-Range", "bytes 0-4/3000000"}}).status, 201);
  const auto answer = send("edge0", "PUT", "hello", {{"Content-Range", "bytes 0-4/3000001"}});
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(message(answer),
            "the file has 3000001 bytes, and the work list of node \"edge0\" allows 3000000");
  EXPECT_EQ(registry_.requests().size(), 1u);
}

TEST_F(GatewayUploads, OtherRequestsAreRefused) {
  EXPECT_EQ(send("edge0", "GET").status, 403);
  EXPECT_EQ(send("edge0", "POST", "x").status, 405);
  EXPECT_EQ(send("edge0", "DELETE").status, 405);
  EXPECT_EQ(send("edge0", "HEAD", "", {}, kBlob + "?a=b").status, 404);
  EXPECT_EQ(send("edge0", "HEAD", "", {}, "/v1/blobs/sha256:ABC").status, 400);
  EXPECT_EQ(send("edge0", "HEAD", "", {}, kBlob + "/..").status, 404);
  EXPECT_EQ(send("edge0", "PUT", "x", {{"Content-Range", "bytes 0-0/*"}}).status, 400);
  EXPECT_EQ(send("edge0", "GET", "", {}, "/v1/models").status, 403);
  EXPECT_TRUE(registry_.requests().empty());
}

TEST_F(GatewayUploads, RegistryThatRefusesTheGatewayLooksUnavailable) {
  registry_.status = 401;
  const auto answer = send("edge0", "HEAD");
  EXPECT_EQ(answer.status, 503);
}

TEST_F(GatewayUploads, NodeWithARelayedShareUploads) {
  EXPECT_EQ(send("line0", "PUT", "hello").status, 201);
  EXPECT_EQ(send("line0", "PUT", "hello", {{"Content-Range", "bytes 0-4/268435457"}}).status, 413);
  EXPECT_EQ(send("line0", "GET", "", {{"Range", "bytes=0-4"}}).status, 403);
  EXPECT_EQ(registry_.requests().size(), 1u);
}

TEST_F(GatewayUploads, NodeWithARelayedReplicaReadsRanges) {
  registry_.status = 206;
  registry_.headers = {{"Content-Range", "bytes 3-7/9"}};
  registry_.body = "lo wo";
  const auto answer = send("line1", "GET", "", {{"Range", "bytes=3-7"}});
  EXPECT_EQ(answer.status, 206);
  EXPECT_EQ(answer.body, "lo wo");
  EXPECT_EQ(answer.headers.find("Content-Range"), "bytes 3-7/9");
  const auto requests = registry_.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].method, "GET");
  EXPECT_EQ(requests[0].headers.find("Range"), "bytes=3-7");
  EXPECT_EQ(requests[0].headers.find("Authorization"), "Bearer secret");
  EXPECT_EQ(send("line1", "PUT", "x").status, 403);
}

TEST_F(GatewayUploads, ReadBeyondOnePieceIsRefused) {
  EXPECT_EQ(send("line1", "GET").status, 416);
  for (const char* range : {"bytes=0-", "bytes=-5", "bytes=0-1048576", "bytes=5-4", "lines=0-4",
                            "bytes=0-1,3-4", "bytes=0-99999999999999999999", "bytes"})
    EXPECT_EQ(send("line1", "GET", "", {{"Range", range}}).status, 416) << range;
  EXPECT_TRUE(registry_.requests().empty());
  registry_.status = 206;
  EXPECT_EQ(send("line1", "GET", "", {{"Range", "bytes=0-1048575"}}).status, 206);
}

TEST(Uploads, RefusalComesWithTheHeader) {
  FakeRegistry registry;
  const auto http = net::loopback(registry.handler());
  const Uploads uploads(*http, {});
  const auto status = [&](std::uint64_t limit, net::Headers headers) {
    const auto refused = uploads.refusal(
        "edge0", {.upload_bytes_max = limit},
        {.method = "PUT", .target = kBlob, .headers = std::move(headers), .body = "", .peer = {}});
    return refused ? refused->status : 0;
  };
  EXPECT_EQ(status(10, {{"Content-Length", "10"}}), 0);
  EXPECT_EQ(status(10, {{"Content-Length", "11"}}), 413);
  EXPECT_EQ(status(0, {{"Content-Length", "10"}}), 403);
  EXPECT_EQ(status(1 << 30, {{"Content-Length", "1048577"}}), 413);  // above one piece
  EXPECT_EQ(status(1 << 30, {{"Content-Length", "1048576"},
                             {"Content-Range", "bytes 0-1048575/1073741824"}}),
            0);
}

TEST(Uploads, RightsComeFromTheWorkList) {
  const auto rights = [](const char* spec) {
    return Uploads::rights_of(codec::parse_json(spec).value());
  };
  const auto uploads = [](std::uint64_t bytes) { return BlobRights{.upload_bytes_max = bytes}; };
  EXPECT_EQ(rights("{}"), uploads(0));
  EXPECT_EQ(rights(R"({"spec": {"workers": [{"key": "a/b"}]}})"), uploads(0));
  EXPECT_EQ(
      rights(
          R"({"spec": {"workers": [{"uploads": {"maxBytes": 5}}, {"uploads": {"maxBytes": 3}}]}})"),
      uploads(5));
  EXPECT_EQ(rights(R"({"spec": {"workers": [{"uploads": {"maxBytes": -5}}]}})"), uploads(0));
  EXPECT_EQ(rights(R"({"spec": {"workers": [{"uploads": {"maxBytes": 5},
                                            "bucket": {"url": "s3://results"}}]}})"),
            uploads(0));
  EXPECT_EQ(rights(R"({"spec": {"shares": [{"key": "a"}], "replicas": [{"key": "a"}]}})"),
            uploads(0));
  EXPECT_EQ(rights(R"({"spec": {"shares": [{"key": "a", "relay": true}]}})"),
            uploads(kRelayedBytesMax));
  EXPECT_EQ(rights(R"({"spec": {"replicas": [{"key": "a", "relay": true}]}})"),
            (BlobRights{.reads = true}));
}

}  // namespace uploads_test
}  // namespace varda::gateway
