#include "registry/bucket_answers.h"

#include <gtest/gtest.h>

#include "meta/object.h"

namespace varda::registry {
namespace bucket_answers_test {

TEST(BucketAnswers, ListingAndPartsAreRead) {
  const auto listing = parse_listing(
      "<?xml version=\"1.0\"?>\n<ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>"
      "<Contents><Key>x/&lt;y&gt;</Key><LastModified>2026-03-01T10:00:00.500Z</LastModified>"
      "<ETag>&quot;0&quot;</ETag><Size>7</Size></Contents></ListBucketResult>");
  ASSERT_TRUE(listing.ok()) << listing.error();
  EXPECT_EQ(listing->continuation, "a&b");
  ASSERT_EQ(listing->objects.size(), 1u);
  EXPECT_EQ(listing->objects[0].key, "x/<y>");
  EXPECT_EQ(listing->objects[0].size_bytes, 7u);
  EXPECT_EQ(meta::format_time(listing->objects[0].modified), "2026-03-01T10:00:00Z");
  const auto parts = parse_parts(
      "<ListPartsResult><IsTruncated>true</IsTruncated><Part><PartNumber>1</PartNumber>"
      "<ETag>&quot;a&quot;</ETag><Size>5</Size></Part><Part><PartNumber>3</PartNumber>"
      "<ETag>b</ETag><Size>6</Size></Part></ListPartsResult>");
  ASSERT_TRUE(parts.ok()) << parts.error();
  EXPECT_EQ(parts->after, 3);
  EXPECT_EQ(parts->parts[0].tag, "\"a\"");
  EXPECT_EQ(write_parts(parts->parts),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>"
            "<Part><PartNumber>3</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>");
  EXPECT_EQ(parse_upload_id("<R><UploadId>a+/=</UploadId></R>").value(), "a+/=");
}

TEST(BucketAnswers, IncompleteAnswersAreUnavailable) {
  for (const char* text :
       {"", "<html>busy</html>", "<IsTruncated>maybe</IsTruncated>",
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>false</IsTruncated><Contents><Key>k</Key></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>-1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>1</Size>"
        "<LastModified>noon</LastModified></Contents>"}) {
    const auto listing = parse_listing(text);
    ASSERT_FALSE(listing.ok()) << text;
    EXPECT_EQ(listing.error().code(), Code::kUnavailable);
  }
  const std::string part = "<Part><PartNumber>1</PartNumber><ETag>a</ETag><Size>5</Size></Part>";
  for (const std::string& text :
       {std::string(), "<IsTruncated>false</IsTruncated>" + part + part,
        std::string("<IsTruncated>true</IsTruncated>"),
        std::string("<IsTruncated>false</IsTruncated><Part><PartNumber>10001</PartNumber>"
                    "<ETag>a</ETag><Size>5</Size></Part>")})
    EXPECT_FALSE(parse_parts(text).ok()) << text;
  EXPECT_FALSE(parse_upload_id("<UploadId></UploadId>").ok());
}

}  // namespace bucket_answers_test
}  // namespace varda::registry
