#include "codec/archive.h"

#include <gtest/gtest.h>
#include <vector>

namespace varda::codec {
namespace archive_test {

struct Item {
  ArchiveEntry entry;
  std::string bytes;
};

ArchiveEntry file(std::string path, std::uint64_t size, std::uint32_t mode = 0644) {
  return {.path = std::move(path),
          .kind = EntryKind::kFile,
          .size_bytes = size,
          .mode = mode,
          .link_target = ""};
}

std::vector<Item> sample() {
  std::vector<Item> items;
  items.push_back(
      {{.path = "m/", .kind = EntryKind::kDirectory, .mode = 0755, .link_target = ""}, ""});
  items.push_back({file("m/model.onnx", 200'000), std::string(200'000, 'x')});
  items.push_back({file("m/empty", 0), ""});
  items.push_back({file("m/größe \xE6\xA8\xA1.txt", 3, 0755), "abc"});
  items.push_back({file("m/" + std::string(180, 'n') + "/" + std::string(120, 'f'), 1), "1"});
  items.push_back(
      {{.path = "m/link", .kind = EntryKind::kSymlink, .mode = 0777, .link_target = "model.onnx"},
       ""});
  items.push_back(
      {{.path = "m/hard", .kind = EntryKind::kHardLink, .mode = 0644, .link_target = "m/empty"},
       ""});
  return items;
}

std::string pack(ArchiveFormat format, const std::vector<Item>& items) {
  std::string out;
  auto writer = ArchiveWriter::create(format, [&](std::string_view bytes) {
    out += bytes;
    return ok_status();
  });
  EXPECT_TRUE(writer.ok());
  for (const Item& item : items) {
    EXPECT_TRUE((*writer)->add(item.entry).ok()) << item.entry.path;
    EXPECT_TRUE((*writer)->write(item.bytes).ok());
  }
  EXPECT_TRUE((*writer)->finish().ok());
  return out;
}

ByteSource pieces(std::string bytes, std::size_t piece) {
  return [bytes = std::move(bytes), piece, at = std::size_t{0}]() mutable -> Result<std::string> {
    std::string part = bytes.substr(at, piece);
    at += part.size();
    return part;
  };
}

Result<std::vector<Item>> unpack(ByteSource source) {
  std::vector<Item> items;
  TRY(auto reader, ArchiveReader::open(std::move(source)));
  while (true) {
    TRY(auto entry, reader->next());
    if (!entry) return items;
    Item item{*entry, ""};
    while (true) {
      TRY(std::string bytes, reader->read());
      if (bytes.empty()) break;
      item.bytes += bytes;
    }
    items.push_back(std::move(item));
  }
}

class ArchiveFormats : public ::testing::TestWithParam<ArchiveFormat> {};
INSTANTIATE_TEST_SUITE_P(All, ArchiveFormats,
                         ::testing::Values(ArchiveFormat::kTar, ArchiveFormat::kTarGzip,
                                           ArchiveFormat::kTarZstd));

TEST_P(ArchiveFormats, WrittenEntriesReadBackFromAnyPieceSize) {
  const auto items = sample();
  const std::string bytes = pack(GetParam(), items);
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{7}, bytes.size()}) {
    const auto found = unpack(pieces(bytes, piece));
    ASSERT_TRUE(found.ok()) << found.error();
    ASSERT_EQ(found->size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const ArchiveEntry& wanted = items[i].entry;
      const ArchiveEntry& got = (*found)[i].entry;
      EXPECT_EQ(got.path, wanted.path);
      EXPECT_EQ(got.kind, wanted.kind) << got.path;
      EXPECT_EQ(got.size_bytes, wanted.size_bytes) << got.path;
      EXPECT_EQ(got.link_target, wanted.link_target) << got.path;
      if (got.kind == EntryKind::kFile) {
        EXPECT_EQ(got.mode, wanted.mode) << got.path;
      }
      EXPECT_EQ((*found)[i].bytes, items[i].bytes) << got.path;
    }
  }
}

TEST(ZipArchive, WrittenFilesReadBack) {
  const std::string name = "label/Gr\xC3\xBCne \xC3\x84pfel/1.png";
  const std::vector<Item> items{{file(name, 5), "apple"}, {file("pending/2.npy", 0), ""}};
  const std::string bytes = pack(ArchiveFormat::kZip, items);
  EXPECT_EQ(bytes, pack(ArchiveFormat::kZip, items)) << "equal entries give equal bytes";
  EXPECT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  // Bit 11 of the flags: the name is UTF-8 (APPNOTE.TXT 6.3.10, section 4.4.4).
  EXPECT_EQ(bytes[7] & 0x08, 0x08);
  const auto found = unpack(pieces(bytes, 7));
  ASSERT_TRUE(found.ok()) << found.error();
  ASSERT_EQ(found->size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ((*found)[i].entry.path, items[i].entry.path);
    EXPECT_EQ((*found)[i].bytes, items[i].bytes);
  }
}

TEST_P(ArchiveFormats, EqualEntriesGiveEqualBytes) {
  EXPECT_EQ(pack(GetParam(), sample()), pack(GetParam(), sample()));
}

TEST_P(ArchiveFormats, UnreadEntriesAreSkipped) {
  auto reader = ArchiveReader::open(pieces(pack(GetParam(), sample()), 4096));
  ASSERT_TRUE(reader.ok());
  std::size_t count = 0;
  for (auto entry = (*reader)->next(); entry.ok() && *entry; entry = (*reader)->next()) ++count;
  EXPECT_EQ(count, sample().size());
}

TEST_P(ArchiveFormats, SourceErrorIsReturnedUnchanged) {
  const std::string bytes = pack(GetParam(), sample());
  const Error timeout(Code::kTimeout, "peer went silent");
  for (const std::size_t limit : {std::size_t{0}, std::size_t{100}, bytes.size() / 2}) {
    std::size_t produced = 0;
    const auto found = unpack([&]() -> Result<std::string> {
      if (produced >= limit) return timeout;
      std::string part = bytes.substr(produced, std::min<std::size_t>(50, limit - produced));
      produced += part.size();
      return part;
    });
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error(), timeout);
  }
}

TEST_P(ArchiveFormats, TruncationInsideAnEntryIsCorrupt) {
  const std::string bytes = pack(GetParam(), sample());
  const auto found = unpack(pieces(bytes.substr(0, bytes.size() / 3), 4096));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), Code::kCorrupt);
}

TEST_P(ArchiveFormats, SinkErrorIsReturnedUnchanged) {
  const Error full(Code::kExhausted, "disk full");
  auto writer = ArchiveWriter::create(GetParam(), [&](std::string_view) -> Status { return full; });
  Status status = writer.ok() ? ok_status() : Status(writer.error());
  if (status.ok()) status = (*writer)->add(file("a", 1 << 20));
  std::string noise(1 << 20, '\0');
  std::uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  if (status.ok()) status = (*writer)->write(noise);
  if (status.ok()) status = (*writer)->finish();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error(), full);
}

// bgzip, pigz and `cat a.gz b.gz` write several members. Files may also have appended data or
// padding.
TEST(ArchiveReader, GzipWithSeveralMembersIsReadFromAnyPieceSize) {
  const std::string one = pack(ArchiveFormat::kTarGzip, sample());
  const std::vector<Item> more = {{file("n", 3), "abc"}};
  const std::string other = pack(ArchiveFormat::kTarGzip, more);
  // A tar archive ends with zeros, so a second archive is ignored.
  for (const std::string& tail :
       {std::string(), other, std::string(600, '\0'), std::string("junk"), std::string("\x1F")}) {
    for (std::size_t piece = 1; piece < 40; ++piece) {
      const auto found = unpack(pieces(one + tail, piece));
      ASSERT_TRUE(found.ok()) << found.error() << " " << piece;
      ASSERT_EQ(found->size(), sample().size()) << piece;
      EXPECT_EQ((*found)[1].bytes, sample()[1].bytes) << piece;
    }
  }
}

TEST(ArchiveReader, StoredZipIsRead) {
  // One stored entry "a" with the byte "b": local header, data, central directory, end record.
  const std::string zip(
      "PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\xf9\xef\xbe\x71\x01\0\0\0\x01\0\0\0\x01\0\0\0ab"
      "PK\x01\x02\x1e\x03\x0a\0\0\0\0\0\0\0\0\0\xf9\xef\xbe\x71\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0"
      "\0\0\0\0\0\xa4\x81\0\0\0\0a"
      "PK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x20\0\0\0\0\0",
      32 + 47 + 22);
  const auto found = unpack(pieces(zip, 10));
  ASSERT_TRUE(found.ok()) << found.error();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*found)[0].entry.path, "a");
  EXPECT_EQ((*found)[0].bytes, "b");
}

TEST(ArchiveReader, ErrorNamesTheFormatOfOtherFiles) {
  struct Case {
    std::string bytes;
    Code code;
    std::string message;
  };
  const Case cases[] = {
      {"", Code::kCorrupt, "empty"},
      {"<!DOCTYPE html><html><body>Log in</body></html>", Code::kCorrupt, "not an archive"},
      {std::string(2000, 'A'), Code::kCorrupt, "not an archive"},
      {std::string("\x08\x08\x12\x07pytorch", 11), Code::kUnsupported,
       "an ONNX file, not an archive: pack it"},
      {std::string("7z\xBC\xAF\x27\x1C\0\4", 8), Code::kUnsupported, "7z"},
      {"Rar!\x1A\x07\x01", Code::kUnsupported, "rar"},
      {std::string("\xFD"
                   "7zXZ\0",
                   6),
       Code::kUnsupported, "xz"},
      {"BZh91AY", Code::kUnsupported, "bzip2"},
  };
  for (const Case& c : cases) {
    const auto found = unpack(pieces(c.bytes, 100));
    ASSERT_FALSE(found.ok()) << c.message;
    EXPECT_EQ(found.error().code(), c.code) << c.message;
    EXPECT_NE(found.error().message().find(c.message), std::string::npos) << found.error();
  }
}

TEST(ArchiveWriter, PlainNamesNeedNoExtendedHeader) {
  std::vector<Item> items = sample();
  EXPECT_NE(pack(ArchiveFormat::kTar, items).find("PaxHeader"), std::string::npos);
  items.resize(3);
  EXPECT_EQ(pack(ArchiveFormat::kTar, items).find("PaxHeader"), std::string::npos);
}

TEST(ArchiveWriter, HeadersContentsAndZerosMakeATarArchive) {
  const std::vector<Item> items = sample();
  std::string made;
  for (const Item& item : items) {
    const auto header = tar_header(item.entry);
    ASSERT_TRUE(header.ok()) << header.error();
    made += *header + item.bytes;
    made.resize((made.size() + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes, '\0');
  }
  made.resize(made.size() + 2 * kTarBlockBytes, '\0');
  EXPECT_EQ(made, pack(ArchiveFormat::kTar, items));
  EXPECT_EQ(tar_header({.path = "d", .kind = EntryKind::kOther, .link_target = ""}).error().code(),
            Code::kInvalid);
}

TEST(ArchiveWriter, BytesMustMatchTheDeclaredSize) {
  auto writer =
      ArchiveWriter::create(ArchiveFormat::kTar, [](std::string_view) { return ok_status(); });
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add(file("a", 2)).ok());
  EXPECT_FALSE((*writer)->write("abc").ok());
  ASSERT_TRUE((*writer)->write("a").ok());
  EXPECT_FALSE((*writer)->add(file("b", 0)).ok());
  EXPECT_FALSE((*writer)->finish().ok());
}

}  // namespace archive_test
}  // namespace varda::codec
