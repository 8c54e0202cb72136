// One pass: download -> SHA-256 -> decompress -> extract, into a directory that nobody sees yet.
#pragma once

#include "artifact/failure.h"
#include "artifact/internal/source.h"

namespace varda::artifact {

struct Tree {
  os::Path root;  // the scratch directory, or its only top-level directory
  std::uint64_t bytes = 0;
  std::size_t files = 0;
};

class TreeRecordWriter;

/// Extracts into the empty directory `into`, made here. Nothing is written outside of it. Every file is synced when it is whole,
/// and the directories at the end. `record` null: what was unpacked is not recorded.
/// kDiskFull, terminal: it has more bytes than `bytes_max`; evicting does not help.
Outcome<Tree> extract(os::FileSystem& fs, Source& source, const os::Path& into, const Limits& limits, const ProgressSink& progress,
                      TreeRecordWriter* record = nullptr, std::uint64_t bytes_max = UINT64_MAX);

/// Downloads to `options.spool`, extracts to `into` and checks the digest over every byte: from the first source of the request
/// that gives it, in the order of `options.book`, all of them going on with the same spool: neighbours first, and those that were
/// in trouble lately after everybody else. When none does, one message says why of
/// each, and the reason is that of the source that is most likely to heal. On success the tree is synced and the spool gone; on
/// failure `into` is gone, and the spool stays where the download can go on.
Outcome<Tree> install(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, const SourceOptions& options,
                      const os::Path& into);

}  // namespace varda::artifact
