// Broken or malicious file servers: each is refused for the right reason, with limited space and
// time.
#include <gtest/gtest.h>

#include "artifact/internal/source.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/manual_clock.h"
#include "artifact/testing/origin.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace hostile_sources_test {

using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kUrl = "http://files/m.tar";

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t seed = 1;
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class HostileSources : public ::testing::Test {
 protected:
  HostileSources() { CHECK(fs.make_directories("/data", 0755).ok()); }
  std::unique_ptr<Store> open(net::HttpClient& http, Limits limits = {},
                              CredentialReader* credentials = nullptr) {
    auto store = Store::open(
        {.root = "/data/artifacts", .limits = limits, .transport = {.credentials = credentials}},
        fs, http);
    CHECK(store.ok());
    return std::move(*store);
  }
  Request request(std::string url = kUrl) const {
    return {.url = std::move(url), .digest = codec::Sha256::of(archive), .framework = "onnx"};
  }
  std::uint64_t scratch_bytes() {
    std::uint64_t sum = 0;
    for (const std::string& name : *fs.list("/data/artifacts/.scratch"))
      sum += fs.stat("/data/artifacts/.scratch/" + name)->value().size_bytes;
    return sum;
  }
  /// Runs a real server that answers with `answer`, and a real client.
  Failure against(net::SyncHandler answer, Limits limits = {}) {
    auto server = *net::Server::create({}, net::inline_handler(std::move(answer)));
    const auto client = net::make_client({.redirects_max = 10});
    const auto store = open(*client, limits);
    const auto outcome = store->ensure(kForever.with_timeout(std::chrono::seconds(60)),
                                       request("http://" + server->address() + "/m.tar"));
    EXPECT_FALSE(outcome.ok());
    return outcome.error();
  }
  static net::Response redirect(std::string to) {
    net::Response response;
    response.status = 302;
    response.headers.add("Location", std::move(to));
    return response;
  }

  os::testing::MemoryFileSystem fs;
  Origin origin;
  const std::string archive = testing::model_archive(noise(50'000));
};

TEST_F(HostileSources, EndlessBodyStopsAtTheLimitAndLeavesNoSpool) {
  Limits limits;
  limits.archive_bytes_max = 200'000;
  origin.put(kUrl, Origin::File{.bytes = std::string(2'000'000, 'x'), .length = false});
  const auto outcome = open(origin, limits)->ensure(kForever, request());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kUnsafeArchive);
  EXPECT_LT(origin.bytes_served(), 300'000u);
  EXPECT_EQ(scratch_bytes(), 0u);
}

TEST_F(HostileSources, AnnouncedLengthAboveTheLimitIsRefusedUnread) {
  Limits limits;
  limits.archive_bytes_max = 200'000;
  origin.put(kUrl, Origin::File{.bytes = std::string(2'000'000, 'x')});
  EXPECT_EQ(open(origin, limits)->ensure(kForever, request()).error().reason,
            Reason::kUnsafeArchive);
  EXPECT_EQ(origin.bytes_served(), 0u);
}

TEST_F(HostileSources, RedirectLoopsAndOtherSchemesFailTheDownload) {
  struct Case {
    const char* to;
    const char* message;
  };
  for (const Case& c :
       {Case{"/m.tar?again", "redirects"}, Case{"file:///etc/passwd", "must begin with http"},
        Case{"ftp://files/m.tar", "must begin with http"},
        Case{"http://127.0.0.1:1/m.tar?hush", "127.0.0.1:1"}}) {
    int requests = 0;
    const Failure failure = against([&](const net::Request&) {
      ++requests;
      return redirect(c.to);
    });
    EXPECT_EQ(failure.reason, Reason::kDownloadFailed) << c.to;
    EXPECT_NE(failure.error.message().find(c.message), std::string::npos) << failure.error;
    EXPECT_EQ(failure.error.message().find("hush"), std::string::npos) << failure.error;
    EXPECT_LE(requests, 11);
  }
}

TEST_F(HostileSources, ErrorHidesTheContentOfAnotherOrigin) {
  const std::string inner = "what an inner server says";
  const std::string digest = codec::Sha256::of(inner).hex();
  for (const bool page : {false, true}) {
    auto server = *net::Server::create({}, net::inline_handler([&](const net::Request&) {
                                         net::Response response;
                                         response.body = inner;
                                         if (page)
                                           response.headers.add("Content-Type", "text/html");
                                         return response;
                                       }));
    const Failure failure =
        against([&](const net::Request&) { return redirect("http://" + server->address() + "/"); });
    EXPECT_EQ(failure.reason, page ? Reason::kDownloadFailed : Reason::kDigestMismatch);
    const std::string& text = failure.error.message();
    EXPECT_EQ(text.find(digest), std::string::npos) << text;
    EXPECT_EQ(text.find(std::to_string(inner.size()) + " bytes"), std::string::npos) << text;
    EXPECT_NE(text.find(page ? "HTML page" : "differ"), std::string::npos) << text;
  }
  const Failure own = against([&](const net::Request& request) {
    if (request.target == "/m.tar") return redirect("/here");
    net::Response response;
    response.body = inner;
    return response;
  });
  EXPECT_NE(own.error.message().find(digest), std::string::npos)
      << "a redirect within the origin hides nothing: " << own.error;
}

TEST_F(HostileSources, ResumedDownloadStillCountsAsAnotherOrigin) {
  // The first answer redirects and breaks; the second claims that the archive is complete.
  const std::string inner = "what an inner server says";
  auto other = *net::Server::create({}, net::inline_handler([&](const net::Request&) {
                                      net::Response response;
                                      response.body = inner;
                                      return response;
                                    }));
  bool redirects = true;
  auto server = *net::Server::create(
      {}, net::inline_handler([&](const net::Request&) {
        if (redirects) return redirect("http://" + other->address() + "/");
        net::Response response;
        response.status = 416;
        response.headers.add("Content-Range", "bytes */" + std::to_string(inner.size()));
        return response;
      }));
  const auto client = net::make_client({.redirects_max = 10});
  CHECK(fs.make_directories("/data/spool", 0755).ok());
  SourceOptions options;
  options.request = request("http://" + server->address() + "/m.tar");
  options.spool = "/data/spool/m.part";
  const auto read_all = [&] {
    auto source = open_source(kForever, fs, *client, options);
    CHECK(source.ok());
    while (true) {
      auto bytes = (*source)->next();
      if (!bytes.ok() || bytes->empty()) return (*source)->other_origin();
    }
  };
  EXPECT_TRUE(read_all());
  redirects = false;
  EXPECT_TRUE(read_all()) << "the spool holds bytes of an origin that is not known any more";
}

TEST_F(HostileSources, RefusedAddressIsAForbiddenSource) {
  auto server = *net::Server::create(
      {}, net::inline_handler([&](const net::Request&) { return net::Response(); }));
  const auto client =
      net::make_client({.redirects_max = 10, .destinations = *net::Destinations::create({})});
  const auto outcome =
      open(*client)->ensure(kForever, request("http://" + server->address() + "/m.tar"));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kSourceForbidden);
  EXPECT_NE(outcome.error().error.message().find("--allow-source 127.0.0.1"), std::string::npos)
      << outcome.error().error;
}

TEST_F(HostileSources, ContentChangedBetweenRangesIsNeverMixed) {
  const std::string other = testing::model_archive(noise(50'001));
  for (const bool reports : {true, false}) {
    SCOPED_TRACE(reports ? "with validators" : "without");
    Origin server;
    int requests = 0;
    server.put(kUrl,
               Origin::File{.bytes = other, .etag = reports ? "\"1\"" : "", .break_after = 20'000});
    server.on_request([&] {
      if (++requests == 1) return;
      server.on_request({});
      server.put(kUrl, Origin::File{.bytes = archive, .etag = reports ? "\"2\"" : ""});
    });
    // The second connection still gets the first content, because the file is looked up before the
    // hook.
    const auto store = open(server);
    auto outcome = store->ensure(kForever, request());
    if (!outcome.ok()) outcome = store->ensure(kForever, request());
    ASSERT_TRUE(outcome.ok()) << outcome.error().error;
    EXPECT_EQ(*os::read_file(fs, outcome->directory / "model.onnx"), noise(50'000));
    ASSERT_TRUE(store->remove(codec::Sha256::of(archive)).ok());
  }
}

TEST_F(HostileSources, WrongRangeIsDiscardedAndTheDownloadStartsOver) {
  int requests = 0;
  origin.put(kUrl, Origin::File{.bytes = archive, .break_after = 20'000});
  origin.on_request([&] {
    if (++requests == 1) origin.put(kUrl, Origin::File{.bytes = archive, .range_shift = 100});
  });
  const auto outcome = open(origin)->ensure(kForever, request());
  ASSERT_TRUE(outcome.ok()) << outcome.error().error << ": it starts over, from a whole answer";
  EXPECT_EQ(*os::read_file(fs, outcome->directory / "model.onnx"), noise(50'000));
  EXPECT_EQ(origin.seen().back().range, "");
}

TEST_F(HostileSources, DigestErrorNamesAnUnrequestedContentEncoding) {
  origin.put(kUrl, Origin::File{.bytes = "\x1f\x8b not the archive",
                                .headers = {{"Content-Encoding", "gzip"}}});
  const auto outcome = open(origin)->ensure(kForever, request());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDigestMismatch);
  EXPECT_NE(outcome.error().error.message().find("content-encoding gzip"), std::string::npos)
      << outcome.error().error;
  // Servers that label every .tar.gz as gzip-encoded but send it unchanged are accepted.
  origin.put(kUrl, Origin::File{.bytes = archive, .headers = {{"Content-Encoding", "gzip"}}});
  EXPECT_TRUE(open(origin)->ensure(kForever, request()).ok());
}

TEST_F(HostileSources, LoginPageIsATransientFailureAndLeavesNoSpool) {
  origin.put(kUrl, Origin::File{.bytes = "<html>log in</html>", .content_type = "text/html"});
  const auto outcome = open(origin)->ensure(kForever, request());
  EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
  EXPECT_EQ(scratch_bytes(), 0u);
}

TEST_F(HostileSources, LoginPageDuringADownloadKeepsTheSpoolForAnyContentType) {
  struct Case {
    const char* type;
    std::string page;
  };
  for (const Case& c : {Case{"text/html", "log in"}, Case{"Text/HTML; charset=utf-8", "log in"},
                        Case{"application/xhtml+xml", "<?xml?>"}, Case{"", "<html>log in</html>"},
                        Case{"application/octet-stream", "\xef\xbb\xbf\r\n <!DOCTYPE HTML>"}}) {
    SCOPED_TRACE(std::string(c.type) + " " + c.page);
    Origin server;
    int requests = 0;
    server.put(kUrl, Origin::File{.bytes = archive, .etag = "\"e\"", .break_after = 20'000});
    server.on_request([&] {
      if (++requests == 1)
        server.put(kUrl, Origin::File{.bytes = c.page, .content_type = c.type, .ranges = false});
    });
    const auto store = open(server);
    const auto outcome = store->ensure(kForever, request());
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed) << outcome.error().error;
    EXPECT_NE(outcome.error().error.message().find("HTML page"), std::string::npos)
        << outcome.error().error;
    EXPECT_GE(scratch_bytes(), 20'000u);
    server.on_request({});
    server.put(kUrl, Origin::File{.bytes = archive, .etag = "\"e\""});
    ASSERT_TRUE(store->ensure(kForever, request()).ok());
    EXPECT_EQ(server.seen().back().range, "bytes=20000-");
    ASSERT_TRUE(store->remove(codec::Sha256::of(archive)).ok());
  }
}

TEST_F(HostileSources, ShortRangeIsFollowedByARequestForTheRest) {
  origin.put(kUrl, Origin::File{.bytes = archive, .break_after = 20'000});
  origin.on_request([&] { origin.put(kUrl, Origin::File{.bytes = archive, .range_max = 7'000}); });
  const auto outcome = open(origin)->ensure(kForever, request());
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(*os::read_file(fs, outcome->directory / "model.onnx"), noise(50'000));
  EXPECT_EQ(origin.bytes_served(), archive.size());
}

TEST_F(HostileSources, ServerThatPromisesTooMuchGetsAtMost100Requests) {
  int requests = 0;
  auto server = *net::Server::create(
      {}, net::inline_handler([&](const net::Request& seen) {
        net::Response response;
        const std::string range(seen.headers.find("Range").value_or(""));
        ++requests;
        response.body = archive.substr(0, 10);
        if (range.empty()) return response;
        const std::string from = range.substr(6, range.size() - 7);
        response.status = 206;
        response.headers.add("Content-Range", "bytes " + from + "-" + from + "/1000000000");
        response.body = "x";
        return response;
      }));
  // An earlier attempt left the beginning; every answer is one byte and a promise of more.
  ASSERT_TRUE(fs.make_directories("/data/artifacts/.scratch", 0755).ok());
  const os::Path part = "/data/artifacts/.scratch/" + codec::Sha256::of(archive).hex() + ".part";
  ASSERT_TRUE(os::write_file_atomically(fs, part, archive.substr(0, 1000)).ok());
  const auto client = net::make_client({.redirects_max = 3});
  const auto outcome = open(*client)->ensure(kForever.with_timeout(std::chrono::seconds(60)),
                                             request("http://" + server->address() + "/m.tar"));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed) << outcome.error().error;
  EXPECT_NE(outcome.error().error.message().find("of 1000000000"), std::string::npos)
      << outcome.error().error;
  EXPECT_LE(requests, 100);
}

TEST_F(HostileSources, DrippingConnectionIsAbandonedAndItsBytesAreKept) {
  // Ten bytes now and then: never silent, and never done.
  class Drip final : public net::HttpClient {
   public:
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest) override {
      class Body final : public net::BodyReader {
       public:
        explicit Body(Context ctx) : ctx_(std::move(ctx)) {}
        Result<std::optional<std::string>> read() override {
          TRY_VOID(ctx_.sleep_for(std::chrono::milliseconds(2)));
          return std::optional<std::string>("0123456789");
        }

       private:
        const Context ctx_;
      };
      ++connections;
      net::ClientResponse response;
      response.status = 200;
      response.body = std::make_unique<Body>(ctx);
      return response;
    }
    int connections = 0;
  } drip;
  ASSERT_TRUE(fs.make_directories("/s", 0755).ok());
  auto source = open_source(
      kForever, fs, drip,
      {.request = request(), .spool = "/s/a.part", .stall = std::chrono::milliseconds(50)});
  ASSERT_TRUE(source.ok());
  std::uint64_t bytes = 0;
  while (true) {
    const auto piece = source.value()->next();
    if (!piece.ok()) {
      EXPECT_EQ(piece.error().reason, Reason::kDownloadFailed);
      EXPECT_NE(piece.error().error.message().find("within the time limit"), std::string::npos)
          << piece.error().error;
      break;
    }
    bytes += piece->size();
  }
  EXPECT_EQ(drip.connections, 1) << "it is for the back-off to ask again";
  EXPECT_EQ(fs.stat("/s/a.part")->value().size_bytes, bytes);
}

TEST_F(HostileSources, ServerThatBreaksAfterEachByteGetsAtMost100Requests) {
  origin.put(kUrl, Origin::File{.bytes = archive, .break_after = 1});
  const auto outcome = open(origin)->ensure(kForever, request());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
  EXPECT_LE(origin.seen().size(), 100u);
  EXPECT_GT(scratch_bytes(), 0u);
}

class FixedCredentials final : public CredentialReader {
 public:
  explicit FixedCredentials(Outcome<Credentials> answer) : answer_(std::move(answer)) {}
  Outcome<Credentials> read(const Context&, const std::string&) override { return answer_; }

 private:
  Outcome<Credentials> answer_;
};

TEST_F(HostileSources, CredentialsAreNotSentToRedirectTargets) {
  std::string first, second;
  auto target = *net::Server::create(
      {}, net::inline_handler([&](const net::Request& seen) {
        second = std::string(seen.headers.find("Authorization").value_or("none"));
        net::Response response;
        response.body = archive;
        return response;
      }));
  auto source = *net::Server::create(
      {}, net::inline_handler([&](const net::Request& seen) {
        first = std::string(seen.headers.find("Authorization").value_or("none"));
        return redirect("http://" + target->address() + "/elsewhere");
      }));
  struct Case {
    Credentials credentials;
    const char* sent;
  };
  Credentials basic, token, both;
  basic.username = "jane";
  basic.password = "a:b";
  token.token = both.token = "t0k";
  both.username = both.password = "x";
  for (const Case& c :
       {Case{basic, "Basic amFuZTphOmI="}, Case{token, "Bearer t0k"}, Case{both, "Bearer t0k"}}) {
    const auto client = net::make_client({.redirects_max = 3});
    FixedCredentials reader(c.credentials);
    const auto store = open(*client, {}, &reader);
    Request wanted = request("http://" + source->address() + "/m.tar");
    wanted.credentials = "default/files";
    const auto outcome = store->ensure(kForever.with_timeout(std::chrono::seconds(60)), wanted);
    ASSERT_TRUE(outcome.ok()) << outcome.error().error;
    EXPECT_EQ(first, c.sent);
    EXPECT_EQ(second, "none");
    ASSERT_TRUE(store->remove(wanted.digest).ok());
  }
}

TEST_F(HostileSources, RefusalNamesTheSecretButNoSecretValue) {
  Credentials credentials;
  credentials.token = "hush";
  credentials.allow_http = true;
  FixedCredentials reader(credentials);
  for (const int status : {401, 403}) {
    origin.put(kUrl, Origin::File{.bytes = "no", .status = status});
    Request wanted = request();
    EXPECT_NE(
        open(origin)->ensure(kForever, wanted).error().error.message().find("the model names none"),
        std::string::npos);
    wanted.credentials = "default/files";
    const auto outcome = open(origin, {}, &reader)->ensure(kForever, wanted);
    const std::string& text = outcome.error().error.message();
    EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
    EXPECT_NE(text.find("HTTP " + std::to_string(status)), std::string::npos) << text;
    EXPECT_NE(text.find("sent with default/files"), std::string::npos) << text;
    EXPECT_EQ(text.find("hush"), std::string::npos) << text;
  }
  EXPECT_EQ(origin.seen().back().authorization, "Bearer hush");
}

TEST_F(HostileSources, MissingCredentialsPreventTheRequest) {
  FixedCredentials reader(
      Failure{Reason::kCredentialsForbidden, Error(Code::kForbidden, "label the namespace")});
  Request wanted = request();
  wanted.credentials = "default/files";
  origin.put(kUrl, archive);
  EXPECT_EQ(open(origin, {}, &reader)->ensure(kForever, wanted).error().reason,
            Reason::kCredentialsForbidden);
  EXPECT_EQ(open(origin)->ensure(kForever, wanted).error().reason, Reason::kCredentialsMissing);
  EXPECT_TRUE(origin.seen().empty());
  Credentials ca;
  ca.ca_pem = "pem";
  FixedCredentials with_ca(ca);
  EXPECT_EQ(open(origin, {}, &with_ca)->ensure(kForever, wanted).error().reason,
            Reason::kCredentialsMissing)
      << "a CA that cannot be trusted here is not left out in silence";
}

TEST_F(HostileSources, CredentialsAreSentOnlyToMirrorsNamedInTheSecret) {
  Credentials credentials;
  credentials.token = "hush";
  credentials.hosts = {"named.example"};
  FixedCredentials reader(credentials);
  Request wanted = request("https://elsewhere.example/m.tar");
  wanted.credentials = "default/files";
  const auto invalid = open(origin, {}, &reader)->ensure(kForever, wanted);
  EXPECT_EQ(invalid.error().reason, Reason::kCredentialsInvalid);
  EXPECT_NE(invalid.error().error.message().find("default/files"), std::string::npos)
      << invalid.error().error;
  EXPECT_NE(invalid.error().error.message().find("elsewhere.example"), std::string::npos)
      << invalid.error().error;
  EXPECT_TRUE(origin.seen().empty()) << "no source is asked in vain";

  wanted.mirrors = {"https://named.example/m.tar"};
  origin.put(wanted.url, Origin::File{.bytes = "no", .status = 401});
  origin.put(wanted.mirrors.front(), Origin::File{.bytes = "no", .status = 404});
  const auto refused = open(origin, {}, &reader)->ensure(kForever, wanted);
  const std::string& text = refused.error().error.message();
  EXPECT_NE(
      text.find("default/files is not sent: its key hosts does not contain elsewhere.example"),
      std::string::npos)
      << text;
  ASSERT_EQ(origin.seen().size(), 2u);
  EXPECT_EQ(origin.seen()[0].authorization, "");
  EXPECT_EQ(origin.seen()[1].authorization, "Bearer hush");
}

TEST_F(HostileSources, S3RequestsAreSignedForEachRange) {
  Credentials credentials;
  credentials.access_key_id = "id";
  credentials.secret_access_key = "secret";
  credentials.endpoint = "http://minio:9000";
  FixedCredentials reader(credentials);
  const std::string url = "http://minio:9000/models/m.tar";
  origin.put(url, Origin::File{.bytes = archive, .etag = "\"e\"", .break_after = 20'000});
  Request wanted = request("s3://models/m.tar");
  wanted.credentials = "default/minio";
  ASSERT_TRUE(open(origin, {}, &reader)->ensure(kForever, wanted).ok());
  const auto seen = origin.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NE(seen[0].authorization.find("SignedHeaders=host;x-amz-content-sha256;x-amz-date,"),
            std::string::npos);
  EXPECT_NE(seen[1].authorization.find("SignedHeaders=host;if-range;range;x-amz"),
            std::string::npos)
      << seen[1].authorization;
  EXPECT_NE(seen[1].authorization, seen[2].authorization);
  EXPECT_EQ(seen[2].range, "bytes=40000-");

  origin.put(url, Origin::File{.bytes = "<Error><Code>NoSuchKey</Code></Error>", .status = 404});
  wanted.digest = codec::Sha256::of("another");
  const auto missing = open(origin, {}, &reader)->ensure(kForever, wanted);
  EXPECT_NE(missing.error().error.message().find("s3://models/m.tar: HTTP 404 (NoSuchKey)"),
            std::string::npos)
      << missing.error().error;
}

}  // namespace hostile_sources_test
}  // namespace varda::artifact
