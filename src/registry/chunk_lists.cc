#include "registry/chunk_lists.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/file_server.h"
#include "base/log.h"
#include "codec/chunks.h"
#include "registry/blob_reader.h"

namespace varda::registry {
namespace {

using codec::Sha256;
using os::Path;

constexpr std::size_t kWriteBytes = 64 << 10;
constexpr const char* kUnfinishedList = "unfinished";

/// After compression, equal content gives different bytes.
bool is_compressed(std::string_view begin) {
  return begin.starts_with("\x1f\x8b") || begin.starts_with("\x28\xb5\x2f\xfd");
}

net::Response refuse_list(const Error& error) {
  const bool later = error.code() == Code::kUnavailable;
  net::Response out{.status = later                             ? 503
                              : error.code() == Code::kNotFound ? 404
                                                                : 500,
                    .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
                    .body = error.message() + "\n"};
  if (later) out.headers.add("Retry-After", "1");
  return out;
}

}  // namespace

net::Response ChunkLists::serve(const Sha256& digest, const net::Request& request) {
  const auto blob = blobs_.find(digest);
  if (!blob.ok()) return refuse_list(blob.error());
  if (!*blob) return refuse_list(Error(Code::kNotFound, "the blob is not stored"));
  auto file = find_or_compute(**blob);
  if (!file.ok()) return refuse_list(file.error());
  const auto size = (*file)->size();
  if (!size.ok()) return refuse_list(size.error());
  return artifact::serve_content({.size_bytes = *size,
                                  .tag = "\"sha256:" + digest.hex() + ".chunks\"",
                                  .modified = (*blob)->created,
                                  .open = artifact::bytes_of_file(std::move(*file))},
                                 request);
}

Result<std::unique_ptr<os::File>> ChunkLists::find_or_compute(const BlobInfo& blob) {
  const Error none(Code::kNotFound, "the blob has no list of chunks");
  if (blob.size_bytes < codec::kDeltaBytesMin) return none;
  const auto open = [&]() -> Result<std::unique_ptr<os::File>> {
    TRY(auto file, fs_.open(path_of(blob.digest), os::Open::kRead));
    TRY(const std::uint64_t size, file->size());
    if (size == 0) return none;
    return file;
  };
  const auto exists = [&]() -> Result<bool> {
    TRY(const auto info, fs_.stat(path_of(blob.digest)));
    return info.has_value();
  };
  TRY(const bool known, exists());
  if (known) return open();
  if (waiting_.fetch_add(1) >= options_.waiting_max) {
    waiting_.fetch_sub(1);
    return Error(Code::kUnavailable, "other lists of chunks are being computed; try again");
  }
  const Status computed = [&]() -> Status {
    const MutexLock lock(computing_);
    TRY(const bool done, exists());
    return done ? ok_status() : compute(blob);
  }();
  waiting_.fetch_sub(1);
  TRY_VOID(computed);
  return open();
}

Status ChunkLists::compute(const BlobInfo& blob) {
  TRY_VOID(fs_.make_directories(options_.root, 0755));
  const Path unfinished = options_.root / kUnfinishedList;
  TRY(const auto file, fs_.open(unfinished, os::Open::kTruncate, 0644));
  const Status written = write(blob, *file);
  if (!written.ok() && written.error().code() != Code::kUnsupported) return written;
  if (!written.ok()) TRY_VOID(file->truncate(0));
  // A list that a power cut damaged would disable deltas of this blob for ever.
  TRY_VOID(file->sync());
  TRY_VOID(fs_.rename(unfinished, path_of(blob.digest)));
  return make_room(path_of(blob.digest));
}

Status ChunkLists::write(const BlobInfo& blob, os::File& file) {
  std::string text = codec::chunk_list_head(blob.size_bytes, blob.digest);
  codec::ChunkSplitter splitter(
      [&text](const codec::Chunk& chunk) { codec::append_chunk(text, chunk); });
  std::uint64_t bytes = 0;
  bool begun = false;
  TRY_VOID(
      read_blob(blobs_, blob.digest, 0, blob.size_bytes, [&](std::string_view piece) -> Status {
        if (!std::exchange(begun, true) && is_compressed(piece))
          return Error(Code::kUnsupported, "the blob is compressed");
        splitter.update(piece);
        if (bytes + text.size() > codec::kChunkListBytesMax)
          return Error(Code::kUnsupported, "the list is too long");
        if (text.size() < kWriteBytes) return {};
        bytes += text.size();
        return file.write(std::exchange(text, {}));
      }));
  splitter.finish();
  return file.write(text);
}

Status ChunkLists::make_room(const Path& newest) {
  struct Item {
    WallTime modified;
    Path path;
    std::uint64_t bytes;
  };
  std::vector<Item> items;
  std::uint64_t sum = 0;
  TRY(const std::vector<std::string> names, fs_.list(options_.root));
  for (const std::string& name : names) {
    const Path path = options_.root / name;
    TRY(const auto info, fs_.stat(path));
    if (!info) continue;
    // An empty file uses a block of the disk, too.
    const std::uint64_t bytes = std::max<std::uint64_t>(info->size_bytes, 4096);
    sum += bytes;
    if (path != newest) items.push_back({info->modified, path, bytes});
  }
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.modified < b.modified; });
  for (auto item = items.begin(); item != items.end() && sum > options_.bytes_max; ++item) {
    TRY_VOID(fs_.remove(item->path));
    sum -= item->bytes;
  }
  return {};
}

}  // namespace varda::registry
