#include "registry/request.h"

#include <gtest/gtest.h>

namespace varda::registry {
namespace request_test {

const std::string kHex(64, 'a');

TEST(RegistryRoute, PathsNameBlobsModelsAndVersions) {
  EXPECT_EQ(parse_route("/v1/blobs")->kind, Route::Kind::kBlobs);
  const auto blob = parse_route("/v1/blobs/sha256:" + kHex);
  ASSERT_TRUE(blob.ok()) << blob.error();
  EXPECT_EQ(blob->kind, Route::Kind::kBlob);
  EXPECT_EQ(blob->digest.hex(), kHex);
  EXPECT_FALSE(blob->named);
  EXPECT_TRUE(parse_route("/v1/blobs/sha256%3A" + kHex).ok());
  EXPECT_TRUE(parse_route("/v1/blobs/sha256:" + kHex + "/model.onnx")->named);
  EXPECT_FALSE(parse_route("/v1/blobs/sha256:" + kHex + "/a/model.onnx").ok());
  EXPECT_EQ(parse_route("/v1/models/")->kind, Route::Kind::kModels);
  EXPECT_EQ(parse_route("/v1/models/default/digits/versions")->kind, Route::Kind::kVersions);
  const auto version = parse_route("/v1/models/default/digits/versions/1.2-a");
  ASSERT_TRUE(version.ok()) << version.error();
  EXPECT_EQ(version->key, (VersionKey{"default", "digits", "1.2-a"}));
}

TEST(RegistryRoute, ListOfChunksHasTheUrlOfItsBlob) {
  for (const std::string end : {"", "/model.tar"}) {
    const auto list = parse_route("/v1/blobs/sha256:" + kHex + end + ".chunks");
    ASSERT_TRUE(list.ok()) << list.error();
    EXPECT_EQ(list->kind, Route::Kind::kChunks);
    EXPECT_EQ(list->digest.hex(), kHex);
  }
  EXPECT_FALSE(parse_route("/v1/blobs/.chunks").ok());
}

TEST(RegistryRoute, NamesThatCouldLeaveTheDirectoryAreInvalid) {
  for (const char* path :
       {"/v1/models/../digits/versions/4", "/v1/models/default/%2e%2e/versions/4",
        "/v1/models/default/digits/versions/..", "/v1/models/default/digits/versions/a%2Fb",
        "/v1/models/default/a%2fb/versions/4", "/v1/models/default/digits/versions/.4",
        "/v1/models//digits/versions/4", "/v1/models/default/digits/versions/a%00",
        "/v1/blobs/sha256:..", "/v1/blobs/sha256:AAAA", "/v1/blobs/md5:aaaa"}) {
    const auto route = parse_route(path);
    ASSERT_FALSE(route.ok()) << path;
    EXPECT_EQ(route.error().code(), Code::kInvalid) << path;
  }
  for (const char* path :
       {"", "/", "/v1", "/v1/", "/v2/blobs", "/v1/models/default", "/v1/models/default/digits",
        "/v1/models/default/digits/tags/4", "/v1/blobs/a/b/c"}) {
    const auto route = parse_route(path);
    ASSERT_FALSE(route.ok()) << path;
    EXPECT_EQ(route.error().code(), Code::kNotFound) << path;
  }
}

TEST(RegistryCopySource, RangeIsKnownAndCannotOverflow) {
  const auto source = parse_copy_source("sha256:" + kHex + " bytes 10-19");
  ASSERT_TRUE(source.ok()) << source.error();
  EXPECT_EQ(source->digest.hex(), kHex);
  EXPECT_EQ(source->first, 10u);
  EXPECT_EQ(source->length, 10u);
  EXPECT_EQ(write_copy_source(*source), "sha256:" + kHex + " bytes 10-19");
  for (const std::string text :
       {" bytes 10-9", " bytes 10-", " bytes -9", " bytes 0-18446744073709551615", " bytes 0-9/20",
        " bytes=0-9", "", " ", " bytes", " bytes 0-9 ", "; bytes 0-9"})
    EXPECT_FALSE(parse_copy_source("sha256:" + kHex + text).ok()) << text;
  EXPECT_FALSE(parse_copy_source("").ok());
  EXPECT_FALSE(parse_copy_source("md5:aa bytes 0-9").ok());
}

TEST(RegistryContentRange, OnlyKnownTotalsAreAccepted) {
  const auto range = parse_content_range("bytes 10-19/40");
  ASSERT_TRUE(range.ok()) << range.error();
  EXPECT_EQ(range->first, 10u);
  EXPECT_EQ(range->length, 10u);
  EXPECT_EQ(range->total, 40u);
  EXPECT_TRUE(parse_content_range("bytes 0-0/1").ok());
  EXPECT_TRUE(parse_content_range("bytes 0-18446744073709551613/18446744073709551614").ok());
  for (const char* text :
       {"", "bytes", "bytes */40", "bytes 0-9/*", "bytes 10-9/40", "bytes 0-40/40", "0-9/40",
        "bytes 0-9", "bytes -9/40", "bytes 0-/40", "bytes 0-9/40 ", "bytes +1-9/40",
        "bytes 0-9/99999999999999999999", "bytes 9/10-20", "items 0-9/40"})
    EXPECT_FALSE(parse_content_range(text).ok()) << text;
}

Result<Version> version_of(const std::string& text) {
  const auto json = codec::parse_json(text);
  CHECK(json.ok());
  return Version::from_json(*json);
}

TEST(RegistryRequest, RangeHasBothEnds) {
  const auto range = parse_range("bytes=3-7");
  ASSERT_TRUE(range.ok()) << range.error();
  EXPECT_EQ(range->first, 3u);
  EXPECT_EQ(range->last, 7u);
  for (const char* text : {"", "bytes", "bytes=", "bytes=3-", "bytes=-7", "bytes=7-3", "bytes 3-7",
                           "bytes=0-1,3-4", "bytes=0-18446744073709551616", "bytes=+0-1"})
    EXPECT_EQ(parse_range(text).error().code(), Code::kInvalid) << text;
}

TEST(RegistryVersion, DocumentsSurviveARoundTrip) {
  const std::string digest = "\"sha256:" + kHex + "\"";
  const std::string text = "{\"digest\":" + digest +
                           ",\"size\":7,\"format\":\"onnx\",\"metrics\":{\"accuracy\":0.97,"
                           "\"note\":\"quantised\"},\"lineage\":[\"digits-3\"],\"chunks\":" +
                           digest + ",\"createdAt\":\"2026-03-01T10:00:00Z\"}";
  const auto version = version_of(text);
  ASSERT_TRUE(version.ok()) << version.error();
  EXPECT_EQ(codec::write_json(version->to_json()), text);
}

TEST(RegistryVersion, ErrorsNameTheMember) {
  const std::string good = "{\"digest\":\"sha256:" + kHex + "\"";
  const auto error_of = [](const std::string& text) {
    const auto version = version_of(text);
    EXPECT_FALSE(version.ok()) << text;
    return version.ok() ? "" : version.error().message();
  };
  EXPECT_EQ(error_of("{}"), "digest: required");
  EXPECT_NE(error_of("[]").find("object"), std::string::npos);
  EXPECT_EQ(error_of("{\"digest\":7}").substr(0, 7), "digest:");
  EXPECT_EQ(error_of(good + ",\"size\":-1}").substr(0, 5), "size:");
  EXPECT_EQ(error_of(good + ",\"metrics\":[]}").substr(0, 8), "metrics:");
  EXPECT_EQ(error_of(good + ",\"metrics\":{\"a\":{}}}").substr(0, 10), "metrics.a:");
  EXPECT_EQ(error_of(good + ",\"lineage\":\"a\"}").substr(0, 8), "lineage:");
  EXPECT_EQ(error_of(good + ",\"chunks\":\"a\"}").substr(0, 7), "chunks:");
  EXPECT_EQ(error_of(good + ",\"shape\":1}"), "unknown member \"shape\"");
  EXPECT_EQ(error_of(good + ",\"format\":\"" + std::string(300, 'x') + "\"}").substr(0, 7),
            "format:");
}

}  // namespace request_test
}  // namespace varda::registry
