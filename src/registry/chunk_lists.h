// Lists of the chunks of stored blobs (codec/chunks.h), computed when a client asks:
//
//   ROOT/HEX     the list of the blob HEX; empty: the blob has no list
//
// A cache: the files may disappear at any time, and cost one read of the blob each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "net/http.h"
#include "os/file_system.h"
#include "registry/blob_store.h"

namespace varda::registry {

/// Thread-safe.
class ChunkLists {
 public:
  struct Options {
    os::Path root;                       // created when needed
    std::uint64_t bytes_max = 64 << 20;  // of all lists; the oldest ones are removed
    std::size_t waiting_max = 3;         // requests that may block; 503 beyond
  };
  /// `blobs` and `fs` outlive it.
  ChunkLists(Options options, BlobStore& blobs, os::FileSystem& fs)
      : options_(std::move(options)), blobs_(blobs), fs_(fs) {}

  /// Answers a GET or HEAD of the list. Blocks while it or another list is computed. 404: the blob
  /// is not stored, small, compressed, or has a list above codec::kChunkListBytesMax.
  net::Response serve(const codec::Sha256& digest, const net::Request& request)
      EXCLUDES(computing_);

 private:
  /// The list, or nothing if the blob has none.
  Result<std::unique_ptr<os::File>> find_or_compute(const BlobInfo& blob) EXCLUDES(computing_);
  Status compute(const BlobInfo& blob) REQUIRES(computing_);
  Status write(const BlobInfo& blob, os::File& file);
  Status make_room(const os::Path& newest) REQUIRES(computing_);
  os::Path path_of(const codec::Sha256& digest) const { return options_.root / digest.hex(); }

  const Options options_;
  BlobStore& blobs_;
  os::FileSystem& fs_;
  std::atomic<std::size_t> waiting_{0};
  Mutex computing_;  // held while a list is computed, so that one blob is read at a time
};

}  // namespace varda::registry
