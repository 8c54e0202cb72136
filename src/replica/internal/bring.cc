#include "replica/internal/bring.h"

#include <algorithm>
#include <utility>

namespace varda::replica {
namespace {

/// Reads bytes from an open file; fewer at its end.
Result<std::string> read_at(os::File& file, std::uint64_t offset, std::uint64_t length) {
  TRY_VOID(file.seek(offset));
  std::string out;
  while (out.size() < length) {
    TRY(const std::string piece, file.read(static_cast<std::size_t>(length - out.size())));
    if (piece.empty()) break;
    out += piece;
  }
  return out;
}

/// The number of correct blocks at the start of the file.
Result<std::uint64_t> good_blocks(os::File& file, const SnapshotFile& wanted,
                                  std::uint64_t block_bytes) {
  TRY(const std::uint64_t size, file.size());
  std::uint64_t good = 0;
  for (; good < wanted.blocks.size(); ++good) {
    const std::uint64_t length = length_of(good, wanted.size, block_bytes);
    if (good * block_bytes + length > size) break;
    TRY(const std::string bytes, read_at(file, good * block_bytes, length));
    if (codec::Sha256::of(bytes) != wanted.blocks[good]) break;
  }
  return good;
}

}  // namespace

std::vector<LocalFile> staged_files(os::FileSystem& fs, const os::Path& staging,
                                    std::uint64_t block_bytes, const Limits& limits) {
  std::vector<LocalFile> out;
  const auto text = os::read_file(fs, staging / "snapshot");
  if (!text.ok()) return out;
  const auto snapshot = Snapshot::decode(*text, limits);
  if (!snapshot.ok() || snapshot->block_bytes != block_bytes) return out;
  for (const SnapshotFile& file : snapshot->files) {
    if (file.path.empty()) continue;  // only the store knows the name of a single file
    const os::Path path = staging / "tree" / file.path;
    const auto info = fs.stat(path);
    if (info.ok() && *info && (*info)->kind == os::FileKind::kFile &&
        (*info)->size_bytes == file.size) {
      out.push_back({path, file});
      continue;
    }
    // Files are made one after the other, so the part belongs to the first missing file.
    const auto part = fs.open(staging / "part", os::Open::kRead);
    if (!part.ok()) break;
    const auto good = good_blocks(**part, file, block_bytes);
    if (!good.ok() || *good == 0) break;
    SnapshotFile holds{
        .path = file.path,
        .size = std::min(file.size, *good * block_bytes),
        .blocks = {file.blocks.begin(), file.blocks.begin() + static_cast<std::ptrdiff_t>(*good)}};
    out.push_back({staging / "part", std::move(holds)});
    break;
  }
  return out;
}

Bring::Bring(const Context& ctx, os::FileSystem& fs, os::Path staging, const Snapshot& wanted,
             std::vector<LocalFile> local, BlockSource& source,
             std::function<void(const Progress&)> progress)
    : ctx_(ctx),
      fs_(fs),
      staging_(std::move(staging)),
      wanted_(wanted),
      local_(std::move(local)),
      source_(source),
      progress_(std::move(progress)),
      room_(fs, staging_) {}

void Bring::note(std::uint64_t bytes) {
  done_.done_bytes += bytes;
  if (progress_) progress_(done_);
}

Status Bring::write(os::File& part, std::string_view block) {
  TRY_VOID(room_.take(block.size()));
  return part.write(block);
}

Status Bring::run(const std::string& file_name) {
  const os::Path tree = staging_ / "tree";
  TRY_VOID(fs_.make_directories(tree));
  Snapshot have{.block_bytes = wanted_.block_bytes, .files = {}};
  for (const LocalFile& file : local_) have.files.push_back(file.holds);
  const std::vector<FilePlan> plans = difference(have, wanted_);
  for (const FilePlan& plan : plans) done_.total_bytes += plan.fetch_bytes;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    TRY_VOID(ctx_.check());
    const SnapshotFile& wanted = wanted_.files[i];
    const os::Path final = tree / (wanted.path.empty() ? file_name : wanted.path);
    TRY(const auto existing, fs_.stat(final));
    // A file gets its name only when it is whole and synced.
    if (existing && existing->kind == os::FileKind::kFile && existing->size_bytes == wanted.size) {
      note(plans[i].fetch_bytes);
      continue;
    }
    TRY_VOID(fs_.remove_all(final));
    TRY_VOID(fs_.make_directories(final.parent_path()));
    TRY_VOID(file(wanted, plans[i], final).context(wanted.path.empty() ? file_name : wanted.path));
  }
  return sync_folders(tree);
}

Status Bring::file(const SnapshotFile& wanted, const FilePlan& plan, const os::Path& final) {
  std::vector<BlockRun> runs = plan.runs;
  if (plan.link) {
    const os::Path& from = local_[plan.from].path;
    const auto info = fs_.stat(from);
    // Hard links may be limited in number or unsupported; then the file is copied.
    if (info.ok() && *info && (*info)->size_bytes == wanted.size && fs_.link(from, final).ok())
      return {};
    runs = {{.first = 0,
             .count = wanted.blocks.size(),
             .fetch = false,
             .file = plan.from,
             .from_block = 0}};
  }
  const os::Path path = staging_ / "part";
  {
    TRY(const auto part, fs_.open(path, os::Open::kCreate));
    TRY(const std::uint64_t good, resume(*part, wanted));
    for (const BlockRun& run : runs) {
      BlockRun remaining = run;
      if (run.first < good) {
        const std::uint64_t skip = std::min(good - run.first, run.count);
        if (run.fetch) {
          for (std::uint64_t i = 0; i < skip; ++i)
            note(length_of(run.first + i, wanted.size, wanted_.block_bytes));
        }
        remaining.first += skip;
        remaining.from_block += skip;
        remaining.count -= skip;
      }
      if (remaining.count == 0) continue;
      TRY_VOID(remaining.fetch ? fetch(*part, wanted, remaining.first, remaining.count)
                               : copy(*part, wanted, remaining));
    }
    TRY_VOID(part->sync());
  }
  return fs_.rename(path, final);
}

Result<std::uint64_t> Bring::resume(os::File& part, const SnapshotFile& wanted) {
  TRY(const std::uint64_t good, good_blocks(part, wanted, wanted_.block_bytes));
  const std::uint64_t keep = std::min(good * wanted_.block_bytes, wanted.size);
  TRY_VOID(part.truncate(keep));
  TRY_VOID(part.seek(keep));
  return good;
}

Status Bring::copy(os::File& part, const SnapshotFile& wanted, const BlockRun& run) {
  auto from = fs_.open(local_[run.file].path, os::Open::kRead);
  for (std::uint64_t i = 0; i < run.count; ++i) {
    TRY_VOID(ctx_.check());
    const std::uint64_t block = run.first + i,
                        length = length_of(block, wanted.size, wanted_.block_bytes);
    Result<std::string> bytes = std::string();
    if (from.ok()) bytes = read_at(**from, (run.from_block + i) * wanted_.block_bytes, length);
    // The local block is damaged, by a program or the disk, so it is fetched.
    if (!from.ok() || !bytes.ok() || codec::Sha256::of(*bytes) != wanted.blocks[block]) {
      done_.total_bytes += length;
      TRY_VOID(fetch(part, wanted, block, 1));
      continue;
    }
    TRY_VOID(write(part, *bytes));
  }
  return {};
}

Status Bring::fetch(os::File& part, const SnapshotFile& wanted, std::uint64_t first,
                    std::uint64_t count) {
  std::uint64_t next = first;
  const Status once = fetch_once(part, wanted, next, first + count);
  if (once.ok() || once.error().code() != Code::kCorrupt) return once;
  const Status again = fetch_once(part, wanted, next, first + count);
  if (again.ok() || again.error().code() != Code::kCorrupt) return again;
  // Twice the same error, so the transport is not the cause.
  return Error(Code::kConflict, again.error().message());
}

Status Bring::fetch_once(os::File& part, const SnapshotFile& wanted, std::uint64_t& next,
                         std::uint64_t end) {
  std::string block;
  const std::uint64_t begin = next * wanted_.block_bytes,
                      stop = std::min(end * wanted_.block_bytes, wanted.size);
  const auto sink = [&](std::string_view piece) -> Status {
    while (!piece.empty()) {
      if (next == end) return Error(Code::kCorrupt, "the source sent more bytes than requested");
      const std::uint64_t length = length_of(next, wanted.size, wanted_.block_bytes);
      const std::string_view take =
          piece.substr(0, static_cast<std::size_t>(length - block.size()));
      block += take;
      piece.remove_prefix(take.size());
      if (block.size() < length) break;
      if (codec::Sha256::of(block) != wanted.blocks[next])
        return Error(Code::kCorrupt,
                     "block " + std::to_string(next) + " does not match its digest");
      TRY_VOID(write(part, block));
      ++next;
      note(block.size());
      block.clear();
    }
    return {};
  };
  TRY_VOID(source_.read(ctx_, wanted, begin, stop - begin, sink));
  if (next < end) return Error(Code::kUnavailable, "the source ended early");
  return {};
}

Status Bring::sync_folders(const os::Path& folder) {
  TRY(const std::vector<std::string> names, fs_.list(folder));
  for (const std::string& name : names) {
    TRY(const auto info, fs_.stat(folder / name));
    if (info && info->kind == os::FileKind::kDirectory) TRY_VOID(sync_folders(folder / name));
  }
  return fs_.sync_directory(folder);
}

}  // namespace varda::replica
