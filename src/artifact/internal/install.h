// One pass: download -> SHA-256 -> decompress -> extract, into a hidden directory.
#pragma once

#include "artifact/failure.h"
#include "artifact/internal/source.h"

namespace varda::artifact {

struct Tree {
  os::Path root;  // the scratch directory, or its single top-level directory
  std::uint64_t bytes = 0;
  std::size_t files = 0;
  std::uint64_t received = 0;  // bytes that the last attempt received over the network
};

class TreeRecordWriter;

/// Makes a tree in the empty directory `into`, which this function creates: extracts an archive, or
/// stores the file `plain_file`, unless that is "". Writes only inside `into`. Syncs every complete
/// file, and the directories at the end. `record` null: writes no record. kDiskFull, terminal: the
/// tree exceeds `bytes_max`, and evicting does not help.
Outcome<Tree> extract(os::FileSystem& fs, Source& source, const os::Path& into,
                      const std::string& plain_file, const Limits& limits,
                      const ProgressSink& progress, TreeRecordWriter* record = nullptr,
                      std::uint64_t bytes_max = UINT64_MAX);

/// Downloads to `options.spool`, extracts to `into` and checks the digest over every byte. Tries
/// the request's sources in the order of `options.history`, all with the same spool. Peer nodes
/// come first, and sources with recent trouble come last. If all fail, one message gives each
/// reason, and the failure's reason is the one most likely to heal. On success the tree is synced
/// and the spool is gone. On failure `into` is gone; the spool stays if the download can resume.
Outcome<Tree> install(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                      const SourceOptions& options, const os::Path& into);

}  // namespace varda::artifact
