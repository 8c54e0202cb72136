#include "artifact/file_server.h"

#include <gtest/gtest.h>

#include "artifact/fetch.h"
#include "artifact/internal/http_date.h"
#include "artifact/testing/archives.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace file_server_test {

const os::Path kRoot = "/srv/files";

class FileServerTest : public ::testing::Test {
 protected:
  FileServerTest() {
    CHECK(fs.make_directories(kRoot / "sub", 0755).ok());
    CHECK(fs.make_directories(kRoot / "..2026_01_01", 0755).ok());
    put("/srv/secret", "not to be seen");
    put(kRoot / "digits", "0123456789");
    put(kRoot / "empty", "");
    put(kRoot / "sub/a b", "spaced");
    put(kRoot / "..2026_01_01/model.tar.gz", "of a ConfigMap");
    // The layout of a ConfigMap volume.
    link("..2026_01_01", "..data");
    link("..data/model.tar.gz", "model.tar.gz");
    link("../digits", "sub/up");
    link("../secret", "out");
    link("/srv/secret", "absolute");
    link("sub/../../secret", "winding");
    link("around", "around");
    link("sub", "folder");
  }
  void put(const os::Path& path, std::string_view bytes) {
    CHECK(os::write_file_atomically(fs, path, bytes).ok());
  }
  void link(const std::string& target, const std::string& name) {
    CHECK(fs.symlink(target, kRoot / name).ok());
  }

  net::Response serve(std::string target, net::Headers headers = {}, std::string method = "GET") {
    net::Request request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.headers = std::move(headers);
    return serve_file(fs, kRoot, request);
  }
  /// "STATUS BODY"
  static std::string text(net::Response response) {
    std::string out = std::to_string(response.status) + " ";
    if (!response.stream) return out;
    while (const auto piece = response.stream->read()) out += *piece;
    return out;
  }
  std::string get(std::string target, net::Headers headers = {}) {
    return text(serve(std::move(target), std::move(headers)));
  }
  std::string header(const net::Response& response, std::string_view name) {
    return std::string(response.headers.find(name).value_or(""));
  }

  os::testing::MemoryFileSystem fs;
};

TEST_F(FileServerTest, ServesFilesByPathAndFollowsLinksBelowTheRoot) {
  EXPECT_EQ(get("/digits"), "200 0123456789");
  EXPECT_EQ(get("//digits?v=1"), "200 0123456789");
  EXPECT_EQ(get("/sub/a%20b"), "200 spaced");
  EXPECT_EQ(get("/./sub/../digits"), "200 0123456789");
  EXPECT_EQ(get("/empty"), "200 ");
  EXPECT_EQ(get("/model.tar.gz"), "200 of a ConfigMap") << "links below the root are followed";
  EXPECT_EQ(get("/sub/up"), "200 0123456789");
  EXPECT_EQ(get("/folder/a%20b"), "200 spaced");
}

TEST_F(FileServerTest, PathsOutsideTheRootAndNonFilesReturn404) {
  for (const char* target : {"/../secret", "/%2e%2e/secret", "/sub/../../secret", "/out",
                             "/absolute", "/winding", "/around", "/", "/sub", "/folder",
                             "/digits/x", "/none", "/digits%00", "//srv/secret", "/..%2fsecret"})
    EXPECT_EQ(get(target), "404 ") << target;
  EXPECT_EQ(get("/%zz"), "400 ");
  EXPECT_EQ(get("digits"), "400 ");
}

TEST_F(FileServerTest, OnlyGetAndHeadAreAllowed) {
  for (const char* method : {"PUT", "POST", "DELETE", "PATCH", "OPTIONS"}) {
    const net::Response refused = serve("/digits", {}, method);
    EXPECT_EQ(refused.status, 405) << method;
    EXPECT_EQ(header(refused, "Allow"), "GET, HEAD");
  }
  const net::Response head = serve("/digits", {{"Range", "bytes=0-1"}}, "HEAD");
  EXPECT_EQ(head.status, 200) << "a range is of GET only";
  EXPECT_EQ(header(head, "Content-Length"), "10");
  EXPECT_FALSE(head.stream);
}

TEST_F(FileServerTest, RangeRequestsReturnTheRequestedBytes) {
  struct Case {
    const char *range, *answer, *content_range;
  };
  for (const Case& c :
       {Case{"bytes=0-0", "206 0", "bytes 0-0/10"}, Case{"bytes=3-5", "206 345", "bytes 3-5/10"},
        Case{"bytes=7-", "206 789", "bytes 7-9/10"}, Case{"bytes=8-99", "206 89", "bytes 8-9/10"},
        Case{"bytes=-3", "206 789", "bytes 7-9/10"},
        Case{"bytes=-99", "206 0123456789", "bytes 0-9/10"},
        Case{"bytes=10-", "416 ", "bytes */10"}, Case{"bytes=-0", "416 ", "bytes */10"},
        Case{"bytes=5-3", "200 0123456789", ""}, Case{"bytes=0-1,3-4", "200 0123456789", ""},
        Case{"bytes=x-", "200 0123456789", ""},
        Case{"bytes=99999999999999999999-", "200 0123456789", ""},
        Case{"lines=0-1", "200 0123456789", ""}, Case{"bytes=-", "200 0123456789", ""}}) {
    net::Response response = serve("/digits", {{"Range", c.range}});
    EXPECT_EQ(header(response, "Content-Range"), c.content_range) << c.range;
    EXPECT_EQ(text(std::move(response)), c.answer) << c.range;
  }
  EXPECT_EQ(serve("/empty", {{"Range", "bytes=0-"}}).status, 416);
}

TEST_F(FileServerTest, IfRangeOfAChangedFileReturnsTheWholeFile) {
  const net::Response first = serve("/digits");
  const std::string tag = header(first, "ETag"), modified = header(first, "Last-Modified");
  EXPECT_EQ(get("/digits", {{"Range", "bytes=4-"}, {"If-Range", tag}}), "206 456789");
  EXPECT_EQ(get("/digits", {{"Range", "bytes=4-"}, {"If-Range", modified}}), "206 456789");
  put(kRoot / "digits", "abcdefghijk");
  EXPECT_EQ(get("/digits", {{"Range", "bytes=4-"}, {"If-Range", tag}}), "200 abcdefghijk");
  EXPECT_NE(header(serve("/digits"), "ETag"), tag);
}

TEST_F(FileServerTest, ConditionalRequestsReturn304IfUnchanged) {
  const net::Response first = serve("/digits");
  const std::string tag = header(first, "ETag"), modified = header(first, "Last-Modified");
  ASSERT_TRUE(parse_http_date(modified)) << modified;
  EXPECT_EQ(get("/digits", {{"If-None-Match", tag}}), "304 ");
  EXPECT_EQ(get("/digits", {{"If-None-Match", "\"x\", W/" + tag}}), "304 ");
  EXPECT_EQ(get("/digits", {{"If-None-Match", "*"}}), "304 ");
  EXPECT_EQ(get("/digits", {{"If-None-Match", "\"x\""}, {"If-Modified-Since", modified}}),
            "200 0123456789");
  EXPECT_EQ(get("/digits", {{"If-Modified-Since", modified}}), "304 ");
  EXPECT_EQ(get("/digits", {{"If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"}}),
            "200 0123456789");
  EXPECT_EQ(get("/digits", {{"If-Modified-Since", "yesterday"}}), "200 0123456789");
}

TEST_F(FileServerTest, UnreadableFileReturns404) {
  fs.fail_nth(1, "open");
  EXPECT_EQ(get("/digits"), "404 ");
}

TEST_F(FileServerTest, FileReplacedWhileOpeningReturns503WithRetryAfter) {
  fs.on_call([this](std::string_view call, const os::Path& path) {
    if (call == "open" && path == kRoot / "digits") {
      fs.on_call(nullptr);
      put(kRoot / "digits", "longer than before");
    }
    return Status();
  });
  net::Response response = serve("/digits");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(header(response, "Retry-After"), "1");
  EXPECT_EQ(get("/digits"), "200 longer than before");
}

TEST_F(FileServerTest, FetchInstallsAnArchiveFromTheFileServer) {
  const std::string archive = testing::model_archive("weights");
  put(kRoot / "m.tar.gz", archive);
  const auto server = net::Server::create(
      {}, net::inline_handler([this](const net::Request& r) { return serve_file(fs, kRoot, r); }));
  ASSERT_TRUE(server.ok()) << server.error().message();
  const auto client = net::make_client({});
  FetchOptions options;
  options.request = {.url = "http://" + (*server)->address() + "/m.tar.gz",
                     .digest = codec::Sha256::of(archive),
                     .framework = "onnx"};
  options.to = "/models/m/1";
  const auto installed = fetch(Context::background(), fs, *client, options, [](const Progress&) {});
  ASSERT_TRUE(installed.ok()) << installed.error().error.message();
  EXPECT_TRUE(*fs.stat("/models/m/1/model.onnx"));
}

TEST(HttpDate, WrittenDatesReadBackTheSame) {
  EXPECT_EQ(write_http_date(WallTime(std::chrono::milliseconds(784111777999))),
            "Sun, 06 Nov 1994 08:49:37 GMT");
  for (const long seconds : {0L, 951782400L, 1704067199L, 4102444800L}) {
    const WallTime time{std::chrono::seconds(seconds)};
    EXPECT_EQ(parse_http_date(write_http_date(time)), time) << write_http_date(time);
  }
}

}  // namespace file_server_test
}  // namespace varda::artifact
