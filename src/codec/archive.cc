#include "codec/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <cerrno>
#include <clocale>
#include <utility>

#include "codec/internal/gunzip.h"

namespace varda::codec {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;

struct FreeReader {
  void operator()(archive* a) const { archive_read_free(a); }
};
struct FreeWriter {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

std::string message_of(archive* a) {
  const char* text = archive_error_string(a);
  return text != nullptr ? text : "unknown failure";
}

bool starts_with(std::string_view bytes, std::string_view magic) {
  return bytes.substr(0, magic.size()) == magic;
}

// Formats that people use for models but that are not read here. Naming the format is more helpful
// than reporting damage.
std::string_view known_but_unread(std::string_view head) {
  if (starts_with(head, std::string_view("7z\xBC\xAF\x27\x1C", 6))) return "7z";
  if (starts_with(head, "Rar!\x1A\x07")) return "rar";
  if (starts_with(head, std::string_view("\xFD"
                                         "7zXZ\0",
                                         6)))
    return "xz";
  if (starts_with(head, "BZh")) return "bzip2";
  if (starts_with(head, std::string_view("\x04\x22\x4D\x18", 4))) return "lz4";
  if (starts_with(head, "!<arch>\n")) return "ar";
  return {};
}

/// A ModelProto begins with ir_version (field 1, a small number), then another early field. No tar,
/// gzip, zstd or zip file begins so.
bool looks_like_onnx(std::string_view head) {
  constexpr std::string_view kNextFields = "\x12\x1A\x22\x28\x32\x3A\x42";
  return head.size() >= 3 && head[0] == '\x08' && head[1] > 0 && head[1] <= 0x20 &&
         kNextFields.find(head[2]) != std::string_view::npos;
}

EntryKind kind_of(archive_entry* entry) {
  if (archive_entry_hardlink_utf8(entry) != nullptr || archive_entry_hardlink(entry) != nullptr)
    return EntryKind::kHardLink;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return EntryKind::kFile;
    case AE_IFDIR:
      return EntryKind::kDirectory;
    case AE_IFLNK:
      return EntryKind::kSymlink;
    default:
      return EntryKind::kOther;
  }
}

// Names are UTF-8 (pax, zip) or raw bytes (ustar). libarchive converts by locale, which is never
// set, so use the form that exists.
const char* either(const char* utf8, const char* raw) { return utf8 != nullptr ? utf8 : raw; }

/// Gives this thread a UTF-8 locale. In other locales, libarchive reads no name that a zip marks as
/// UTF-8, and marks none that it writes.
class Utf8Names {
 public:
  Utf8Names() {
    static const locale_t kUtf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{});
    if (kUtf8 != locale_t{}) before_ = ::uselocale(kUtf8);
  }
  ~Utf8Names() {
    if (before_ != locale_t{}) ::uselocale(before_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  locale_t before_{};
};

class Reader final : public ArchiveReader {
 public:
  explicit Reader(ByteSource source) : source_(std::move(source)), archive_(archive_read_new()) {}

  Status start() {
    // The first bytes decide the error for other formats, so they are checked before libarchive
    // reads them.
    while (pending_.size() < 512) {
      TRY(std::string more, source_());
      if (more.empty()) break;
      pending_ += more;
    }
    if (pending_.empty()) return Error(Code::kCorrupt, "the archive is empty (0 bytes)");
    if (const auto name = known_but_unread(pending_); !name.empty())
      return Error(Code::kUnsupported,
                   "a " + std::string(name) + " archive; use tar, tar.gz, tar.zst or zip");
    if (looks_like_onnx(pending_))
      return Error(Code::kUnsupported,
                   "an ONNX file, not an archive: pack it with `varda pack FILE.onnx`");
    if (!archive_) return Error(Code::kExhausted, "out of memory");
    archive* a = archive_.get();
    zip_ = starts_with(pending_, "PK");
    if (starts_with(pending_, "\x1F\x8B")) {
      gunzip_ = internal::Gunzip::over(pending_, source_);
      if (gunzip_) pending_.clear();
    }
    if (!gunzip_) archive_read_support_filter_gzip(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_format_tar(a);
    archive_read_support_format_zip_streamable(a);
    if (archive_read_open(a, this, nullptr, &Reader::pull, nullptr) != ARCHIVE_OK) return failure();
    return {};
  }

  Result<std::optional<ArchiveEntry>> next() override {
    archive_entry* raw = nullptr;
    std::optional<Utf8Names> names;
    if (zip_) names.emplace();
    const int code = archive_read_next_header(archive_.get(), &raw);
    if (code == ARCHIVE_EOF) return std::optional<ArchiveEntry>();
    // A warning means that an attribute was not converted (a name in another charset, an ACL); the
    // entry is valid.
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return failure();
    ArchiveEntry entry;
    const char* path = either(archive_entry_pathname_utf8(raw), archive_entry_pathname(raw));
    if (path == nullptr) return Error(Code::kCorrupt, "an entry without a readable name");
    entry.path = path;
    entry.kind = kind_of(raw);
    if (archive_entry_size_is_set(raw) != 0 && archive_entry_size(raw) > 0)
      entry.size_bytes = static_cast<std::uint64_t>(archive_entry_size(raw));
    entry.mode = archive_entry_perm(raw);
    const char* link = nullptr;
    if (entry.kind == EntryKind::kHardLink)
      link = either(archive_entry_hardlink_utf8(raw), archive_entry_hardlink(raw));
    if (entry.kind == EntryKind::kSymlink)
      link = either(archive_entry_symlink_utf8(raw), archive_entry_symlink(raw));
    if (link != nullptr) entry.link_target = link;
    return std::optional<ArchiveEntry>(std::move(entry));
  }

  Result<std::string> read() override {
    std::string bytes(kReadBytes, '\0');
    const auto count = archive_read_data(archive_.get(), bytes.data(), bytes.size());
    if (count < 0) return failure();
    bytes.resize(static_cast<std::size_t>(count));
    return bytes;
  }

 private:
  static la_ssize_t pull(archive* a, void* self, const void** buffer) {
    auto& reader = *static_cast<Reader*>(self);
    if (reader.pending_.empty() || reader.handed_out_) {
      Result<std::string> more = reader.gunzip_ ? reader.gunzip_->read() : reader.source_();
      if (!more.ok()) {
        reader.source_error_ = std::move(more).error();
        archive_set_error(a, EIO, "source failed");
        return -1;
      }
      reader.pending_ = std::move(more).value();
    }
    reader.handed_out_ = true;
    *buffer = reader.pending_.data();
    return static_cast<la_ssize_t>(reader.pending_.size());
  }

  Error failure() {
    if (source_error_) return *source_error_;
    const std::string why = message_of(archive_.get());
    if (why == "Unrecognized archive format")
      return Error(Code::kCorrupt, "not an archive; use tar, tar.gz, tar.zst or zip");
    return Error(Code::kCorrupt, "the archive is damaged: " + why);
  }

  ByteSource source_;
  std::unique_ptr<internal::Gunzip> gunzip_;  // null: libarchive decompresses
  std::string pending_;                       // bytes that libarchive may use until its next pull
  bool handed_out_ = false;                   // libarchive already got pending_
  bool zip_ = false;
  std::optional<Error> source_error_;
  std::unique_ptr<archive, FreeReader> archive_;  // last, because closing may call back
};

class Writer final : public ArchiveWriter {
 public:
  explicit Writer(Sink sink) : sink_(std::move(sink)), archive_(archive_write_new()) {}

  enum class Blocks { kFull, kNone };  // kNone: bytes go to the sink at once

  Status start(ArchiveFormat format, Blocks blocks = Blocks::kFull) {
    if (!archive_) return Error(Code::kExhausted, "out of memory");
    archive* a = archive_.get();
    int code = ARCHIVE_OK;
    switch (format) {
      case ArchiveFormat::kTarGzip:
        code = archive_write_add_filter_gzip(a);
        // Otherwise the header holds the packing time, and two runs differ.
        if (code == ARCHIVE_OK)
          code = archive_write_set_filter_option(a, "gzip", "timestamp", nullptr);
        break;
      case ArchiveFormat::kTarZstd:
        code = archive_write_add_filter_zstd(a);
        break;
      case ArchiveFormat::kTar:
      case ArchiveFormat::kZip:
        code = archive_write_add_filter_none(a);
        break;
    }
    zip_ = format == ArchiveFormat::kZip;
    if (code == ARCHIVE_OK)
      code = zip_ ? archive_write_set_format_zip(a) : archive_write_set_format_pax_restricted(a);
    if (code == ARCHIVE_OK && blocks == Blocks::kNone)
      code = archive_write_set_bytes_per_block(a, 0);
    if (code == ARCHIVE_OK) code = archive_write_set_bytes_in_last_block(a, 1);
    if (code == ARCHIVE_OK) code = archive_write_open(a, this, nullptr, &Writer::push, nullptr);
    return code == ARCHIVE_OK ? Status() : failure();
  }

  Status add(const ArchiveEntry& entry) override {
    if (left_ != 0)
      return Error(Code::kInvalid, "the previous entry lacks " + std::to_string(left_) + " bytes");
    if (entry.kind == EntryKind::kOther)
      return Error(Code::kInvalid, entry.path + ": devices and sockets are not archived");
    const std::unique_ptr<archive_entry, FreeEntry> raw(archive_entry_new());
    if (!raw) return Error(Code::kExhausted, "out of memory");
    archive_entry* e = raw.get();
    archive_entry_copy_pathname(e, entry.path.c_str());
    archive_entry_set_mtime(e, 0, 0);
    archive_entry_set_uid(e, 0);
    archive_entry_set_gid(e, 0);
    archive_entry_set_perm(e, entry.mode & 07777);
    archive_entry_set_size(e, 0);
    switch (entry.kind) {
      case EntryKind::kFile:
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_size(e, static_cast<la_int64_t>(entry.size_bytes));
        left_ = entry.size_bytes;
        break;
      case EntryKind::kDirectory:
        archive_entry_set_filetype(e, AE_IFDIR);
        break;
      case EntryKind::kSymlink:
        archive_entry_set_filetype(e, AE_IFLNK);
        archive_entry_copy_symlink(e, entry.link_target.c_str());
        break;
      case EntryKind::kHardLink:
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_copy_hardlink(e, entry.link_target.c_str());
        break;
      case EntryKind::kOther:
        break;
    }
    std::optional<Utf8Names> names;
    if (zip_) names.emplace();
    // A warning: the name is not ASCII. Without a locale, a tar gets the raw bytes and
    // hdrcharset=BINARY.
    const int code = archive_write_header(archive_.get(), e);
    return code == ARCHIVE_OK || code == ARCHIVE_WARN ? Status() : failure();
  }

  Status write(std::string_view bytes) override {
    if (bytes.size() > left_) return Error(Code::kInvalid, "more bytes than the entry declared");
    while (!bytes.empty()) {
      const auto count = archive_write_data(archive_.get(), bytes.data(), bytes.size());
      if (count <= 0) return failure();
      left_ -= static_cast<std::uint64_t>(count);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
  }

  Status finish() override {
    if (left_ != 0)
      return Error(Code::kInvalid, "the last entry lacks " + std::to_string(left_) + " bytes");
    return archive_write_close(archive_.get()) == ARCHIVE_OK ? Status() : failure();
  }

  /// Gives the sink no more bytes. When libarchive frees the writer, it fills the current entry
  /// with zeros, and ends at the first refusal. (archive_write_fail() would leak the writer's
  /// buffer.)
  void abandon() { sink_error_ = Error(Code::kCancelled, "abandoned"); }

 private:
  static la_ssize_t push(archive* a, void* self, const void* buffer, std::size_t size) {
    auto& writer = *static_cast<Writer*>(self);
    // After a failure, libarchive still flushes on free; the sink must not see that.
    if (writer.sink_error_) return -1;
    if (Status status = writer.sink_(std::string_view(static_cast<const char*>(buffer), size));
        !status.ok()) {
      writer.sink_error_ = std::move(status).error();
      archive_set_error(a, EIO, "sink failed");
      return -1;
    }
    return static_cast<la_ssize_t>(size);
  }

  Error failure() {
    if (sink_error_) return *sink_error_;
    return Error(Code::kInternal, "archive: " + message_of(archive_.get()));
  }

  Sink sink_;
  bool zip_ = false;
  std::uint64_t left_ = 0;  // missing bytes of the current entry
  std::optional<Error> sink_error_;
  std::unique_ptr<archive, FreeWriter> archive_;  // last, because freeing may call push()
};

}  // namespace

Result<std::unique_ptr<ArchiveReader>> ArchiveReader::open(ByteSource source) {
  auto reader = std::make_unique<Reader>(std::move(source));
  TRY_VOID(reader->start());
  return std::unique_ptr<ArchiveReader>(std::move(reader));
}

Result<std::unique_ptr<ArchiveWriter>> ArchiveWriter::create(ArchiveFormat format, Sink sink) {
  auto writer = std::make_unique<Writer>(std::move(sink));
  TRY_VOID(writer->start(format));
  return std::unique_ptr<ArchiveWriter>(std::move(writer));
}

Result<std::string> tar_header(const ArchiveEntry& entry) {
  std::string out;
  Writer writer([&out](std::string_view bytes) {
    out += bytes;
    return ok_status();
  });
  TRY_VOID(writer.start(ArchiveFormat::kTar, Writer::Blocks::kNone));
  const Status added = writer.add(entry);
  writer.abandon();
  TRY_VOID(added);
  return out;
}

}  // namespace varda::codec
