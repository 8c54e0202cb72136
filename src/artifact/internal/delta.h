// Finds the parts of a new archive in trees that the node holds, so that only the rest is
// downloaded: docs/design/023-deltas.md.
//
// The list of chunks beside the archive is untrusted. It only proposes where bytes come from. The
// digest over every byte decides, and a failed attempt is repeated without the list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact/internal/source.h"
#include "artifact/internal/tree_image.h"
#include "codec/chunks.h"

namespace varda::artifact {

/// The URL of the list, ".chunks" after the path: "https://files/m.tar.chunks?token=x".
std::string chunk_list_url(std::string_view url);

/// Used by one thread.
class Delta {
 public:
  /// Downloads the list beside `options.url` and looks for its chunks in `options.bases`. Null if
  /// there is no usable list, or if no chunk is found: then the archive is downloaded as a whole.
  /// `ctx` and `fs` outlive the result.
  static std::unique_ptr<Delta> find(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                                     const SourceOptions& options);

  /// Size of the archive, as the list says.
  std::uint64_t total() const { return starts_.back(); }
  std::uint64_t list_bytes() const { return list_bytes_; }
  /// The bytes from `offset` to the end of its chunk, read from a held tree and verified. Empty: no
  /// tree has them. `offset` is less than total().
  std::string read(std::uint64_t offset);
  /// The first offset from `offset` on that a held tree may have; at most total().
  std::uint64_t missing_until(std::uint64_t offset) const;

 private:
  struct Place {
    TreeImage* image = nullptr;  // null: the chunk must be downloaded
    std::uint64_t offset = 0;
  };
  explicit Delta(codec::ChunkList list);
  void search(const Context& ctx, TreeImage& image);
  std::size_t index_at(std::uint64_t offset) const;

  std::vector<codec::Chunk> chunks_;
  std::vector<std::uint64_t> starts_;  // of the chunks, and the total
  std::vector<Place> places_;
  std::uint64_t list_bytes_ = 0;
  std::uint64_t held_bytes_ = 0;  // of the archive, in held trees
  std::vector<std::unique_ptr<TreeImage>> images_;
};

}  // namespace varda::artifact
