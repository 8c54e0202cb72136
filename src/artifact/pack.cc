#include "artifact/pack.h"

#include <vector>

#include "artifact/internal/delta.h"
#include "artifact/internal/pack_items.h"
#include "artifact/layout.h"
#include "codec/chunks.h"

namespace varda::artifact {
namespace {

Result<Packed> write_archive(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                             const std::vector<PackItem>& items, EntryRules& rules,
                             const PackOptions& options,
                             const std::function<Status(std::string_view)>& sink) {
  Packed packed;
  codec::Sha256Stream hash;
  TRY(auto writer, codec::ArchiveWriter::create(options.format, [&](std::string_view bytes) {
        hash.update(bytes);
        packed.bytes += bytes.size();
        return sink(bytes);
      }));
  for (const PackItem& item : items) {
    TRY_VOID(ctx.check());
    TRY_VOID(writer->add(item.entry));
    if (item.entry.kind != codec::EntryKind::kFile) continue;
    const std::string name = (directory / item.path).string();
    TRY(auto file, fs.open(directory / item.path, os::Open::kRead).context(name));
    for (std::uint64_t left = item.entry.size_bytes; left > 0;) {
      TRY_VOID(ctx.check());
      TRY(const std::string bytes, file->read(std::min<std::uint64_t>(left, 256 << 10)));
      if (bytes.empty())
        return Error(Code::kUnavailable, name + ": became shorter while it was packed");
      TRY_VOID(writer->write(bytes));
      left -= bytes.size();
    }
    packed.extracted_bytes += item.entry.size_bytes;
    ++packed.files;
  }
  TRY_VOID(writer->finish());
  packed.digest = hash.finish();
  if (packed.bytes > options.limits.archive_bytes_max)
    return Error(Code::kInvalid, "the archive is larger than " +
                                     std::to_string(options.limits.archive_bytes_max) + " bytes");
  TRY_VOID(rules.count(packed.extracted_bytes, packed.bytes).context("nodes would refuse it"));
  return packed;
}

/// Packs a model that is a single file.
Result<Packed> pack_file(const Context& ctx, os::FileSystem& fs, const os::Path& file,
                         const os::FileInfo& info, const PackOptions& options,
                         const std::function<Status(std::string_view)>& sink) {
  if (file.extension() != ".onnx")
    return Error(Code::kInvalid, file.string() + ": neither a directory nor an .onnx file");
  for (const char* end : {".data", "_data"}) {
    TRY(const auto weights, fs.stat(os::Path(file) += end));
    if (weights)
      return Error(Code::kInvalid,
                   file.string() + ": its weights are in " + file.filename().string() + end +
                       "; put both into a separate directory and pack that directory");
  }
  const os::Path name = file.filename();
  const std::vector<PackItem> items{{name,
                                     {.path = name.string(),
                                      .kind = codec::EntryKind::kFile,
                                      .size_bytes = info.size_bytes,
                                      .mode = 0644,
                                      .link_target = ""}}};
  EntryRules rules(options.limits);
  TRY_VOID(admit_items(rules, items).context(file.string()));
  return write_archive(ctx, fs, file.parent_path(), items, rules, options, sink);
}

}  // namespace

Result<Packed> pack(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                    const PackOptions& options,
                    const std::function<Status(std::string_view)>& sink) {
  TRY(const auto info, fs.stat(directory));
  if (!info) return Error(Code::kNotFound, directory.string() + ": no such directory");
  if (info->kind == os::FileKind::kFile) return pack_file(ctx, fs, directory, *info, options, sink);
  if (info->kind != os::FileKind::kDirectory)
    return Error(Code::kInvalid, directory.string() + ": neither a directory nor a file");
  if (const auto failure = check_layout(fs, directory, options.framework))
    return failure->error.context(directory.string());
  EntryRules rules(options.limits);
  TRY(const auto items, pack_items(fs, directory, options.limits, rules));
  return write_archive(ctx, fs, directory, items, rules, options, sink);
}

Result<Packed> pack_to_file(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                            const PackOptions& options, const os::Path& file) {
  const os::Path relative = std::filesystem::absolute(file).lexically_normal().lexically_relative(
      std::filesystem::absolute(directory / "").lexically_normal());
  if (!relative.empty() && *relative.begin() != "..")
    return Error(
        Code::kInvalid,
        file.string() + ": is inside the packed directory; choose another path with -o FILE");
  const os::Path part = os::Path(file) += ".part";
  TRY(auto out, fs.open(part, os::Open::kTruncate, 0644));
  codec::ChunkList list;
  codec::ChunkSplitter splitter(
      [&list](const codec::Chunk& chunk) { list.chunks.push_back(chunk); });
  const bool plain = options.format == codec::ArchiveFormat::kTar;
  auto packed = pack(ctx, fs, directory, options, [&](std::string_view bytes) {
    if (plain) splitter.update(bytes);
    return out->write(bytes);
  });
  Status status = packed.ok() ? out->sync() : Status(packed.error());
  if (status.ok()) status = fs.rename(part, file);
  if (!status.ok()) {
    (void)fs.remove(part);  // the first error is the one to report
    return status.error();
  }
  TRY_VOID(fs.sync_directory(file.has_parent_path() ? file.parent_path() : os::Path(".")));
  if (plain && packed->bytes >= codec::kDeltaBytesMin) {
    splitter.finish();
    list.bytes = packed->bytes;
    list.digest = packed->digest;
    const std::string text = codec::write_chunk_list(list);
    TRY_VOID(os::write_file_atomically(fs, os::Path(file) += ".chunks", text));
    packed->chunk_list_bytes = text.size();
  }
  return packed;
}

Result<codec::ArchiveFormat> archive_format_of(const os::Path& file) {
  const std::string name = file.filename().string();
  for (const char* end : {".tar.gz", ".tgz"})
    if (name.ends_with(end)) return codec::ArchiveFormat::kTarGzip;
  for (const char* end : {".tar.zst", ".tzst"})
    if (name.ends_with(end)) return codec::ArchiveFormat::kTarZstd;
  if (name.ends_with(".tar")) return codec::ArchiveFormat::kTar;
  return Error(Code::kInvalid,
               file.string() + ": the name must end in .tar.gz, .tgz, .tar.zst, .tzst or .tar");
}

}  // namespace varda::artifact
