#include "artifact/pack.h"

#include <vector>

#include "artifact/internal/entry_rules.h"
#include "artifact/internal/tree.h"
#include "artifact/layout.h"

namespace varda::artifact {
namespace {

struct Item {
  os::Path path;  // relative
  codec::ArchiveEntry entry;
};

Result<std::vector<Item>> collect(os::FileSystem& fs, const os::Path& directory) {
  std::vector<Item> items;
  TRY_VOID(walk(fs, directory, [&](const os::Path& path, const os::FileInfo& info) -> Status {
    Item item{path, {}};
    item.entry.path = path.string();
    switch (info.kind) {
      case os::FileKind::kFile:
        item.entry.kind = codec::EntryKind::kFile;
        item.entry.size_bytes = info.size_bytes;
        item.entry.mode = (info.mode & 0111) != 0 ? 0755 : 0644;
        break;
      case os::FileKind::kDirectory:
        item.entry.kind = codec::EntryKind::kDirectory;
        item.entry.mode = 0755;
        break;
      case os::FileKind::kSymlink: {
        TRY(item.entry.link_target, fs.read_link(directory / path));
        item.entry.kind = codec::EntryKind::kSymlink;
        item.entry.mode = 0777;
        break;
      }
      case os::FileKind::kOther:
        item.entry.kind = codec::EntryKind::kOther;
        break;
    }
    items.push_back(std::move(item));
    return {};
  }));
  return items;
}

Status admit(EntryRules& rules, const std::vector<Item>& items) {
  for (const Item& item : items) {
    TRY_VOID([&]() -> Status {
      TRY([[maybe_unused]] const auto admitted, rules.admit(item.entry));
      return {};
    }());
  }
  return rules.finish();
}

Result<Packed> write_archive(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                             const std::vector<Item>& items, EntryRules& rules,
                             const PackOptions& options,
                             const std::function<Status(std::string_view)>& sink) {
  Packed packed;
  codec::Sha256Stream hash;
  TRY(auto writer, codec::ArchiveWriter::create(options.format, [&](std::string_view bytes) {
        hash.update(bytes);
        packed.bytes += bytes.size();
        return sink(bytes);
      }));
  for (const Item& item : items) {
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
  const std::vector<Item> items{{name,
                                 {.path = name.string(),
                                  .kind = codec::EntryKind::kFile,
                                  .size_bytes = info.size_bytes,
                                  .mode = 0644,
                                  .link_target = ""}}};
  EntryRules rules(options.limits);
  TRY_VOID(admit(rules, items).context(file.string()));
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
  TRY(auto items, collect(fs, directory));
  EntryRules rules(options.limits);
  TRY_VOID(admit(rules, items).context(directory.string()));
  if (!rules.single_top().empty()) {
    for (Item& item : items) item.entry.path = "model/" + item.entry.path;
    items.insert(items.begin(), Item{{},
                                     {.path = "model",
                                      .kind = codec::EntryKind::kDirectory,
                                      .mode = 0755,
                                      .link_target = ""}});
    rules = EntryRules(options.limits);
    TRY_VOID(admit(rules, items).context(directory.string()));
  }

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
  auto packed =
      pack(ctx, fs, directory, options, [&](std::string_view bytes) { return out->write(bytes); });
  Status status = packed.ok() ? out->sync() : Status(packed.error());
  if (status.ok()) status = fs.rename(part, file);
  if (!status.ok()) {
    (void)fs.remove(part);  // the first error is the one to report
    return status.error();
  }
  TRY_VOID(fs.sync_directory(file.has_parent_path() ? file.parent_path() : os::Path(".")));
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
