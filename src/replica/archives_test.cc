#include "replica/archives.h"

#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::replica {
namespace archives_test {

const Context kForever = Context::background();
const codec::Sha256 kDigest = codec::Sha256::of("archive");

class ArchivesTest : public ::testing::Test {
 protected:
  ArchivesTest() {
    CHECK(os::write_file_atomically(fs_, "/a", "0123456789").ok());
    archives_.set({{kDigest, {.nodes = {"edge1"}}}});
  }
  net::HttpClient::Answer get(const std::string& range, const std::string& node = "edge1",
                              std::string url = "") {
    net::ClientRequest request;
    request.url = url.empty() ? archive_url("", kDigest) : std::move(url);
    if (!range.empty()) request.headers.add("Range", range);
    auto answer = net::loopback(archives_.handler(),
                                {.address = "1.2.3.4:5", .certificate_common_name = node})
                      ->call(kForever, std::move(request));
    CHECK(answer.ok());
    return std::move(answer).value();
  }

  os::testing::MemoryFileSystem fs_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> available_{{10, 10}};  // bytes, total
  Archives archives_{[this](const codec::Sha256& digest) -> std::optional<Archives::Content> {
    EXPECT_EQ(digest, kDigest);
    if (!available_) return std::nullopt;
    return Archives::Content{
        .file = std::move(static_cast<os::FileSystem&>(fs_).open("/a", os::Open::kRead)).value(),
        .bytes = available_->first,
        .total = available_->second};
  }};
};

TEST_F(ArchivesTest, RangesReturnTheAvailableBytes) {
  struct Case {
    std::uint64_t bytes, total;
    const char* range;
    int status;
    const char* body;
    const char* content_range;
  };
  for (const Case& c :
       {Case{10, 10, "bytes=0-", 206, "0123456789", "bytes 0-9/10"},
        Case{10, 10, "bytes=3-5", 206, "345", "bytes 3-5/10"},
        Case{10, 10, "bytes=3-99", 206, "3456789", "bytes 3-9/10"},
        Case{4, 10, "bytes=1-", 206, "123", "bytes 1-3/10"},
        Case{4, 10, "bytes=4-", 503, nullptr, ""}, Case{4, 0, "bytes=0-", 503, nullptr, ""},
        Case{10, 10, "bytes=10-", 416, nullptr, "bytes */10"}, Case{10, 10, "", 416, nullptr, ""},
        Case{10, 10, "bytes=-4", 416, nullptr, ""}, Case{10, 10, "bytes=5-4", 416, nullptr, ""},
        Case{10, 10, "lines=0-", 416, nullptr, ""}}) {
    SCOPED_TRACE(std::string(c.range) + " of " + std::to_string(c.bytes) + "/" +
                 std::to_string(c.total));
    available_ = {c.bytes, c.total};
    const auto answer = get(c.range);
    EXPECT_EQ(answer.status, c.status);
    if (c.body != nullptr) {
      EXPECT_EQ(answer.body, c.body);
    }
    EXPECT_EQ(answer.headers.find("Content-Range").value_or(""), c.content_range);
  }
}

TEST_F(ArchivesTest, UnfinishedArchiveReportsItsProgress) {
  available_ = {4, 10};
  const auto answer = get("bytes=4-");
  EXPECT_EQ(answer.headers.find(kBytesDoneHeader).value_or(""), "4");
  EXPECT_EQ(answer.headers.find("Retry-After").value_or(""), "1");
}

TEST_F(ArchivesTest, ComingArchiveReturns503AndMissingArchive410) {
  available_.reset();
  EXPECT_EQ(get("bytes=0-").status, 410);
  archives_.set({{kDigest, {.nodes = {"edge1"}, .coming = true}}});
  EXPECT_EQ(get("bytes=0-").status, 503);
}

TEST_F(ArchivesTest, OnlyListedNodesCanReadAnArchive) {
  EXPECT_EQ(get("bytes=0-", "edge2").status, 404);
  EXPECT_EQ(get("bytes=0-", "").status, 401);
  EXPECT_EQ(get("bytes=0-", "edge1", archive_url("", codec::Sha256::of("other"))).status, 404);
  EXPECT_EQ(get("bytes=0-", "edge1", "/replica/v1/archive?sha256=../a").status, 400);
  archives_.set({});
  EXPECT_EQ(get("bytes=0-").status, 404);
}

TEST_F(ArchivesTest, TruncatedFileEndsTheAnswerEarly) {
  CHECK(os::write_file_atomically(fs_, "/a", "012").ok());
  const auto answer = get("bytes=0-");
  EXPECT_EQ(answer.status, 206);
  EXPECT_EQ(answer.body, "012");
}

}  // namespace archives_test
}  // namespace varda::replica
