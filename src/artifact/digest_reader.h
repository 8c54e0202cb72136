// Reads files at URLs in the background, for their SHA-256 and size alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "artifact/failure.h"
#include "artifact/limits.h"
#include "artifact/transport.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/mutex.h"
#include "codec/digest.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::artifact {

struct FileFacts {
  codec::Sha256 digest;
  std::uint64_t bytes = 0;
};

/// Keeps no byte of the files. Thread-safe.
class DigestReader {
 public:
  struct Options {
    int threads = 2;             // files read at a time
    std::size_t files_max = 64;  // files that are read, wait or failed lately
    // Time from a failure to the next attempt. An answer that no caller took expires after it too.
    Duration pause = std::chrono::minutes(1);
    Transport transport = {};  // its objects outlive the reader
    Limits limits;
    std::vector<os::Path> file_roots;  // allowed parents of file URLs; empty: none are allowed
  };

  /// `fs` and `http` outlive the reader.
  DigestReader(Options options, os::FileSystem& fs, net::HttpClient& http);
  /// Stops the downloads.
  ~DigestReader();

  struct Answer {
    enum class State : std::uint8_t { kReading, kRead, kFailed };
    State state = State::kReading;
    FileFacts facts;      // for kRead
    std::string message;  // for kFailed
  };
  /// The facts about the file at the URL (http, https, s3, file), read after the first call for it.
  /// Never blocks: call it again until the state is not kReading. A read answer is given once; the
  /// next call reads the file again.
  Answer ask(const std::string& url);

 private:
  struct File {
    enum class State : std::uint8_t { kWaiting, kReading, kRead, kFailed };
    State state = State::kWaiting;
    FileFacts facts;
    std::string message;
    SteadyTime finished{};
  };

  void work(const Context& ctx);
  Outcome<FileFacts> read(const Context& ctx, const std::string& url) const;
  bool make_room() REQUIRES(mutex_);

  const Options options_;
  const Clock& clock_;
  os::FileSystem& fs_;
  net::HttpClient& http_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, File> files_ GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace varda::artifact
