#include "registry/service.h"

#include <gtest/gtest.h>
#include <thread>

#include "base/rng.h"
#include "net/client.h"
#include "net/testing/raw_socket.h"
#include "net/url.h"
#include "os/testing/memory_file_system.h"
#include "registry/client.h"
#include "registry/directory_store.h"

namespace varda::registry {
namespace service_test {

using codec::Json;
using codec::Sha256;
using net::HttpClient;
using os::testing::MemoryFileSystem;

const Context kForever = Context::background();
const VersionKey kKey{"default", "digits", "4"};

class RegistryService : public ::testing::Test {
 protected:
  using Reads = Service::Options::Reads;
  void start(std::uint64_t quota = 0, const std::string& token = "",
             Reads reads = Reads::kWithToken) {
    server.reset();
    service.reset();
    store = open_directory_store({.root = "/data", .quota_bytes = quota}, fs).value();
    versions = std::make_unique<Versions>(fs, "/data");
    ASSERT_TRUE(versions->open().ok());
    service = std::make_unique<Service>(
        *store, *versions,
        Service::Options{
            .quota_bytes = quota, .token = token, .reads = reads, .metrics = &metrics_registry});
    server = net::Server::create(service->server_options(), service->handler()).value();
    target = {.url = "http://" + server->address(), .token = token};
  }
  HttpClient::Answer call(const std::string& method, const std::string& path,
                          const std::string& body = "", net::Headers headers = {}) {
    auto answer = http->call(
        kForever,
        {.method = method, .url = target.url + path, .headers = std::move(headers), .body = body});
    EXPECT_TRUE(answer.ok()) << answer.error();
    return answer.ok() ? std::move(*answer) : HttpClient::Answer{};
  }
  static std::string path_of(const std::string& bytes) {
    return "/v1/blobs/" + write_digest(Sha256::of(bytes));
  }
  HttpClient::Answer put(const std::string& bytes) { return call("PUT", path_of(bytes), bytes); }
  HttpClient::Answer put_piece(const std::string& bytes, std::size_t first, std::size_t last) {
    return call("PUT", path_of(bytes), bytes.substr(first, last - first + 1),
                {{"Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(last) +
                                       "/" + std::to_string(bytes.size())}});
  }
  static std::string header(const HttpClient::Answer& answer, std::string_view name) {
    return std::string(answer.headers.find(name).value_or("none"));
  }
  static std::string document(const std::string& bytes, const std::string& more = "") {
    return "{\"digest\":\"" + write_digest(Sha256::of(bytes)) + "\"" + more + "}";
  }

  MemoryFileSystem fs;
  metrics::Registry metrics_registry;
  std::unique_ptr<BlobStore> store;
  std::unique_ptr<Versions> versions;
  std::unique_ptr<Service> service;
  std::unique_ptr<net::Server> server;
  std::unique_ptr<HttpClient> http = net::make_client({});
  Target target;
};

TEST_F(RegistryService, BlobIsReadWithoutTheTokenIfItsDigestIsKnown) {
  start(0, "secret", Reads::kByDigest);
  const net::Headers token = headers_of(target);
  EXPECT_EQ(call("PUT", path_of("hello"), "hello").status, 401);
  EXPECT_EQ(call("PUT", path_of("hello"), "hello", token).status, 201);
  EXPECT_EQ(call("GET", path_of("hello")).body, "hello");
  EXPECT_EQ(call("DELETE", path_of("hello")).status, 401);
  for (const char* path :
       {"/v1/blobs", "/v1/blobs/", "/v1/models", "/v1/models/default/digits/versions"}) {
    EXPECT_EQ(call("GET", path).status, 401) << path;
    EXPECT_EQ(call("GET", path, "", token).status, 200) << path;
  }
}

TEST_F(RegistryService, CollectionKeepsBlobsThatTheCallerNames) {
  start();
  for (const char* bytes : {"model", "rest"}) ASSERT_EQ(put(bytes).status, 201);
  const auto later = system_clock().wall() + std::chrono::hours(25);
  EXPECT_EQ(service->collect(later, {Sha256::of("model")})->blobs, 1u);
  EXPECT_EQ(call("HEAD", path_of("model")).status, 200);
  EXPECT_EQ(call("HEAD", path_of("rest")).status, 404);
}

TEST_F(RegistryService, UploadedBlobIsServedWithRanges) {
  start();
  EXPECT_EQ(call("HEAD", path_of("hello")).status, 404);
  const auto stored = put("hello");
  EXPECT_EQ(stored.status, 201) << stored.body;
  EXPECT_EQ(header(stored, "Location"), path_of("hello"));
  EXPECT_EQ(put("hello").status, 200);
  const auto whole = call("GET", path_of("hello"));
  EXPECT_EQ(whole.body, "hello");
  EXPECT_EQ(header(whole, "ETag"), "\"" + write_digest(Sha256::of("hello")) + "\"");
  const auto part = call("GET", path_of("hello"), "", {{"Range", "bytes=1-3"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, "ell");
  EXPECT_EQ(
      call("GET", path_of("hello"), "", {{"Range", "bytes=1-3"}, {"If-Range", "\"other\""}}).body,
      "hello");
  EXPECT_EQ(header(call("HEAD", path_of("hello")), "Content-Length"), "5");
}

TEST_F(RegistryService, PiecesReportTheOffset) {
  start();
  const std::string bytes = "0123456789";
  const auto first = put_piece(bytes, 0, 3);
  EXPECT_EQ(first.status, 202);
  EXPECT_EQ(header(first, "Upload-Offset"), "4");
  const auto head = call("HEAD", path_of(bytes));
  EXPECT_EQ(head.status, 404);
  EXPECT_EQ(header(head, "Upload-Offset"), "4");
  const auto gap = put_piece(bytes, 5, 9);
  EXPECT_EQ(gap.status, 409);
  EXPECT_EQ(header(gap, "Upload-Offset"), "4");
  EXPECT_EQ(put_piece(bytes, 4, 9).status, 201);
  EXPECT_EQ(call("GET", path_of(bytes)).body, bytes);
}

TEST_F(RegistryService, CutBodyKeepsTheBytesThatArrived) {
  start();
  const std::string bytes(300'000, 'x');
  {
    net::testing::RawSocket socket(server->port());
    socket.write("PUT " + path_of(bytes) +
                 " HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" +
                 bytes.substr(0, 200'000));
    for (int i = 0; i < 10'000 && store->offset(Sha256::of(bytes)).value_or(0) < 200'000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(header(call("HEAD", path_of(bytes)), "Upload-Offset"), "200000");
  EXPECT_EQ(put_piece(bytes, 200'000, 299'999).status, 201);
}

TEST_F(RegistryService, RefusalsNameTheReason) {
  start(1000);
  const std::string path = path_of("hello");
  const auto wrong = call("PUT", path, "HELLO");
  EXPECT_EQ(wrong.status, 422);
  EXPECT_NE(wrong.body.find(Sha256::of("HELLO").hex()), std::string::npos) << wrong.body;
  const auto large = put(std::string(1001, 'x'));
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.body.find("quota of 1000"), std::string::npos) << large.body;
  ASSERT_EQ(put(std::string(600, 'x')).status, 201);
  const auto full = put(std::string(401, 'y'));
  EXPECT_EQ(full.status, 507);
  EXPECT_NE(full.body.find("stored blobs use 600"), std::string::npos) << full.body;
  EXPECT_EQ(call("PUT", "/v1/blobs/sha256:no", "x").status, 400);
  EXPECT_EQ(call("PUT", path, "x", {{"Content-Range", "bytes 0-9/5"}}).status, 400);
  EXPECT_EQ(call("PUT", path, "x", {{"Content-Range", "bytes 0-1/5"}}).status, 400);
  EXPECT_EQ(call("POST", path, "x").status, 405);
  const std::string stored =
      "/v1/blobs/sha256:" + Sha256::of(std::string(600, 'x')).hex() + "/model.onnx";
  EXPECT_EQ(call("GET", stored).status, 200);
  EXPECT_EQ(call("DELETE", stored).status, 404);
  EXPECT_NE(call("PUT", stored, "x").status, 200);
  EXPECT_EQ(call("GET", "/").status, 404);
  net::testing::RawSocket chunked(server->port());
  chunked.write("PUT " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_NE(chunked.read_all().find("HTTP/1.1 411"), std::string::npos);
}

TEST_F(RegistryService, TokenIsNeededForEverything) {
  start(0, "secret");
  EXPECT_EQ(put("hello").status, 401);
  EXPECT_EQ(call("GET", path_of("hello")).status, 401);
  EXPECT_EQ(call("GET", "/v1/blobs", "", {{"Authorization", "Bearer other"}}).status, 401);
  EXPECT_EQ(call("GET", "/v1/blobs", "", {{"Authorization", "Bearer secret"}}).status, 200);
  EXPECT_FALSE(store->offset(Sha256::of("hello"))) << "nothing was written";
}

TEST_F(RegistryService, VersionNamesAStoredBlobAndKeepsItsDigest) {
  start();
  const std::string path = "/v1/models/default/digits/versions/4";
  const auto early = call("PUT", path, document("hello"));
  EXPECT_EQ(early.status, 409);
  EXPECT_NE(early.body.find("not stored"), std::string::npos) << early.body;
  ASSERT_EQ(put("hello").status, 201);
  EXPECT_EQ(call("PUT", path, document("hello", ",\"size\":6")).status, 400);
  EXPECT_EQ(call("PUT", path, document("hello")).status, 201);
  const auto first = codec::parse_json(call("GET", path).body).value();
  EXPECT_EQ(first["size"].as_integer(), 5);
  EXPECT_EQ(call("PUT", path, document("hello", ",\"metrics\":{\"accuracy\":0.9}")).status, 200);
  const auto second = codec::parse_json(call("GET", path).body).value();
  EXPECT_EQ(second["createdAt"], first["createdAt"]);
  EXPECT_EQ(second["metrics"]["accuracy"].as_double(), 0.9);
  ASSERT_EQ(put("other").status, 201);
  EXPECT_EQ(call("PUT", path, document("other")).status, 409);
  EXPECT_EQ(call("DELETE", path_of("hello")).status, 409);
  EXPECT_EQ(call("DELETE", path).status, 204);
  EXPECT_EQ(call("GET", path).status, 404);
  EXPECT_EQ(call("DELETE", path_of("hello")).status, 204);
  EXPECT_EQ(call("DELETE", path_of("hello")).status, 404);
}

TEST_F(RegistryService, ListsArePaged) {
  start();
  ASSERT_EQ(put("hello").status, 201);
  ASSERT_EQ(put("other").status, 201);
  for (const char* path : {"default/digits/versions/1", "default/digits/versions/10",
                           "default/faces/versions/1", "line/digits/versions/1"})
    ASSERT_EQ(call("PUT", std::string("/v1/models/") + path, document("hello")).status, 201);
  const auto list_all = [&](const std::string& path, const char* name) {
    std::string out, next;
    do {
      const auto page = codec::parse_json(
          call("GET", path + "?limit=1" + (next.empty() ? "" : "&continue=" + next)).body);
      for (const Json& item : page.value()["items"].as_array())
        out += item["namespace"].as_string() + " " + item[name].as_string() + ";";
      next = net::percent_encode((*page)["continue"].as_string());
    } while (!next.empty());
    return out;
  };
  EXPECT_EQ(list_all("/v1/models", "name"), "default digits;default faces;line digits;");
  EXPECT_EQ(list_all("/v1/models/default/digits/versions", "version"), " 1; 10;");
  EXPECT_EQ(list_all("/v1/models/default/none/versions", "version"), "");
  const std::string blobs = list_all("/v1/blobs", "digest");
  EXPECT_NE(blobs.find(Sha256::of("hello").hex()), std::string::npos) << blobs;
  EXPECT_NE(blobs.find(Sha256::of("other").hex()), std::string::npos) << blobs;
}

TEST_F(RegistryService, CollectionKeepsNamedAndYoungBlobs) {
  start();
  ASSERT_EQ(put("named").status, 201);
  ASSERT_EQ(put("chunks").status, 201);
  ASSERT_EQ(put("unnamed").status, 201);
  ASSERT_EQ(put_piece("0123456789", 0, 3).status, 202);
  ASSERT_EQ(call("PUT", "/v1/models/default/digits/versions/4",
                 document("named", ",\"chunks\":\"" + write_digest(Sha256::of("chunks")) + "\""))
                .status,
            201);
  const WallTime now = system_clock().wall();
  EXPECT_EQ(service->collect(now + std::chrono::hours(23))->blobs, 0u);
  const auto collected = service->collect(now + std::chrono::hours(25));
  ASSERT_TRUE(collected.ok()) << collected.error();
  EXPECT_EQ(collected->blobs, 1u);
  EXPECT_EQ(collected->bytes, 7u);
  EXPECT_EQ(collected->uploads, 1u);
  EXPECT_EQ(call("HEAD", path_of("named")).status, 200);
  EXPECT_EQ(call("HEAD", path_of("chunks")).status, 200);
  EXPECT_EQ(call("HEAD", path_of("unnamed")).status, 404);
  EXPECT_NE(metrics_registry.text().find("varda_registry_collected_blobs_total 1"),
            std::string::npos);
}

TEST_F(RegistryService, BlobsThatAClusterNamesStay) {
  start(0, "secret");
  const Sha256 one = Sha256::of("one"), two = Sha256::of("two");
  const net::Headers token = {{"Authorization", "Bearer secret"}};
  for (const char* bytes : {"one", "two", "three"})
    ASSERT_EQ(call("PUT", path_of(bytes), bytes, token).status, 201);
  ASSERT_TRUE(put_names(kForever, *http, target, "cluster-a", {one}).ok());
  ASSERT_TRUE(put_names(kForever, *http, target, "cluster-b", {two, Sha256::of("absent")}).ok());
  start(0, "secret");  // the lists are on the disk
  const WallTime later = system_clock().wall() + std::chrono::hours(25);
  EXPECT_EQ(service->collect(later)->blobs, 1u);
  EXPECT_EQ(call("DELETE", path_of("two"), "", token).status, 409) << "an object names it";
  // Each cluster replaces its own list only.
  ASSERT_TRUE(put_names(kForever, *http, target, "cluster-b", {}).ok());
  EXPECT_EQ(service->collect(later)->blobs, 1u);
  EXPECT_EQ(call("GET", path_of("one"), "", token).status, 200);
  EXPECT_EQ(call("GET", path_of("two"), "", token).status, 404);
  EXPECT_EQ(call("DELETE", "/v1/names/cluster-a", "", token).status, 204);
  EXPECT_EQ(service->collect(later)->blobs, 1u);
}

TEST_F(RegistryService, WrongListsOfNamesAreRefused) {
  start();
  const auto put_list = [&](const std::string& body) {
    return call("PUT", "/v1/names/cluster-a", body).status;
  };
  for (const char* body : {"", "[]", "{}", "{\"digests\":{}}", "{\"digests\":[\"sha256:12\"]}",
                           "{\"digests\":[7]}", "{\"digests\":[],\"more\":1}"})
    EXPECT_EQ(put_list(body), 400) << body;
  EXPECT_EQ(put_list("{\"digests\":[]}"), 204);
  EXPECT_EQ(call("GET", "/v1/names/cluster-a").status, 405);
  EXPECT_EQ(call("PUT", "/v1/names/..", "{\"digests\":[]}").status, 400);
  EXPECT_EQ(call("PUT", "/v1/names/a/b", "{\"digests\":[]}").status, 404);
  start(0, "secret");
  EXPECT_EQ(put_list("{\"digests\":[]}"), 401);
}

TEST_F(RegistryService, DamagedListOfNamesStopsTheCollection) {
  start();
  ASSERT_EQ(put("named").status, 201);
  ASSERT_TRUE(put_names(kForever, *http, target, "cluster-a", {Sha256::of("named")}).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, "/data/names/cluster-a.json", "{").ok());
  EXPECT_FALSE(service->collect(system_clock().wall() + std::chrono::hours(25)).ok());
}

TEST_F(RegistryService, AnswerThatABlobIsStoredRenewsItsGrace) {
  start();
  for (const char* bytes : {"sent again", "asked for", "forgotten"})
    ASSERT_EQ(put(bytes).status, 201);
  const WallTime between = system_clock().wall();  // one day later, the blobs are too old
  ASSERT_EQ(put("sent again").status, 200);
  ASSERT_EQ(call("HEAD", path_of("asked for")).status, 200);
  EXPECT_EQ(service->collect(between + std::chrono::hours(24))->blobs, 1u);
  EXPECT_EQ(call("GET", path_of("sent again")).status, 200);
  EXPECT_EQ(call("GET", path_of("asked for")).status, 200);
  EXPECT_EQ(call("GET", path_of("forgotten")).status, 404);
  EXPECT_EQ(service->collect(system_clock().wall() + std::chrono::hours(25))->blobs, 2u);
}

TEST_F(RegistryService, DamagedVersionStopsTheCollection) {
  start();
  ASSERT_EQ(put("named").status, 201);
  ASSERT_EQ(call("PUT", "/v1/models/default/digits/versions/4", document("named")).status, 201);
  ASSERT_TRUE(
      os::write_file_atomically(fs, "/data/models/default/digits/4.json", "{\"digest\":7}").ok());
  EXPECT_FALSE(service->collect(system_clock().wall() + std::chrono::hours(25)).ok());
  EXPECT_EQ(call("HEAD", path_of("named")).status, 200);
}

TEST_F(RegistryService, ClientContinuesWithWhatTheRegistryLacks) {
  start(0, "secret");
  std::string bytes(100'000, '\0');
  const auto rng = seeded_rng(3);
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  const Sha256 digest = Sha256::of(bytes);
  MemoryFileSystem desk;
  ASSERT_TRUE(os::write_file_atomically(desk, "/model.tar.gz", bytes).ok());
  {
    const auto begun =
        store->begin({.digest = digest, .first = 0, .length = 40'000, .total = bytes.size()});
    ASSERT_TRUE((*begun)->write(std::string_view(bytes).substr(0, 40'000)).ok());
  }
  std::vector<std::uint64_t> reported;
  const Status sent =
      upload(kForever, *http, target, desk, "/model.tar.gz", digest,
             {.piece_bytes = 30'000, .attempts_max = 1, .progress = [&](const UploadProgress& now) {
                reported.push_back(now.done);
              }});
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_EQ(reported, (std::vector<std::uint64_t>{40'000, 70'000, 100'000}));
  ASSERT_TRUE(put_version(kForever, *http, target, kKey, {.digest = digest}).ok());
  EXPECT_EQ(get_version(kForever, *http, target, kKey)->digest, digest);
  const Status wrong = upload(kForever, *http, target, desk, "/model.tar.gz", Sha256::of("other"),
                              {.attempts_max = 1});
  EXPECT_EQ(wrong.error().code(), Code::kCorrupt);
}

TEST_F(RegistryService, ClientReadsABlobInPieces) {
  start();
  std::string bytes((2 << 20) + 5, '\0');
  const auto rng = seeded_rng(4);
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  for (const std::string& one : {bytes, bytes.substr(0, 1 << 20), bytes.substr(0, 1)}) {
    const Sha256 digest = Sha256::of(one);
    const ReadAt read = [&one](std::uint64_t offset, std::uint64_t length) -> Result<std::string> {
      return one.substr(offset, length);
    };
    const Status sent = upload(kForever, *http, target, read, one.size(), digest,
                               {.piece_bytes = 1 << 20, .attempts_max = 1, .progress = {}});
    ASSERT_TRUE(sent.ok()) << sent.error();
    const auto got = download(kForever, *http, target, digest, one.size());
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_TRUE(*got == one);
  }
  EXPECT_EQ(download(kForever, *http, target, Sha256::of(bytes), bytes.size() - 1).error().code(),
            Code::kExhausted);
  EXPECT_EQ(download(kForever, *http, target, Sha256::of("other"), 100).error().code(),
            Code::kNotFound);
}

TEST(RegistryClient, WrongAnswersToADownloadAreRefused) {
  struct Case {
    int status;
    const char* range;
    std::string body;
    Code code;
  };
  const Sha256 digest = Sha256::of("abcd");
  for (const Case& one :
       {Case{200, "", "abcd", Code::kInvalid}, Case{206, "", "abcd", Code::kUnavailable},
        Case{206, "bytes 1-4/5", "abcd", Code::kUnavailable},
        Case{206, "bytes 0-4/5", "abcd", Code::kUnavailable},
        Case{206, "bytes 0-3/4", "abcx", Code::kCorrupt}, Case{503, "", "", Code::kUnavailable}}) {
    const auto http = net::loopback(net::inline_handler([&one](const net::Request&) {
      net::Response out{.status = one.status, .headers = {}, .body = one.body};
      if (*one.range != '\0') out.headers.add("Content-Range", one.range);
      return out;
    }));
    const auto got = download(kForever, *http, {.url = "", .token = ""}, digest, 100);
    EXPECT_EQ(got.error().code(), one.code) << one.status << " " << one.range;
  }
}

}  // namespace service_test
}  // namespace varda::registry
