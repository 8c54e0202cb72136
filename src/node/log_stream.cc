#include "node/log_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <limits>
#include <map>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "base/context.h"
#include "base/mutex.h"
#include "base/text.h"
#include "codec/json.h"
#include "net/url.h"
#include "node/internal/cri_log.h"
#include "os/process.h"

namespace varda::node {
namespace {

constexpr std::size_t kPiece = 64u << 10;
constexpr auto kTick = std::chrono::milliseconds(200);

/// Wakes all streams that follow a log, periodically. The thread starts with the first stream.
class Ticker {
 public:
  static Ticker& instance() {
    static Ticker ticker;
    return ticker;
  }

  std::uint64_t add(std::function<void()> wake) {
    MutexLock lock(mutex_);
    wakes_.emplace(++last_, std::move(wake));
    if (!thread_.joinable())
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    changed_.notify_all();
    return last_;
  }

  /// Once this returns, the function is not called any more.
  void remove(std::uint64_t id) {
    MutexLock lock(mutex_);
    wakes_.erase(id);
  }

  ~Ticker() {
    thread_.request_stop();
    {
      MutexLock lock(mutex_);
      changed_.notify_all();
    }
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        MutexLock lock(mutex_);
        while (wakes_.empty() && !stop.stop_requested()) changed_.wait(mutex_);
        for (const auto& [id, wake] : wakes_) wake();
      }
      (void)Context(stop).sleep_for(kTick);
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, std::function<void()>> wakes_ GUARDED_BY(mutex_);
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

// The runner's current record.
Result<codec::Json> read_record(const os::Path& pod_directory) {
  TRY(const std::string text, os::read_file(os::real_file_system(), pod_directory / "record.json"));
  return codec::parse_json(text);
}

bool still_runs(const os::Path& pod_directory, const std::string& container) {
  const auto record = read_record(pod_directory);
  if (!record.ok()) return false;
  for (const char* list : {"init", "main"}) {
    for (const codec::Json& c : (*record)[list].as_array()) {
      if (c["name"].as_string() == container)
        return c["state"].as_string() == "running" || c["state"].as_string() == "starting";
    }
  }
  return false;
}

class LogStream final : public net::BodyStream {
 public:
  // `older` is read before `fd`, each from its current offset; -1: no older part. The stream closes
  // both.
  LogStream(int fd, int older, os::Path directory, std::string container, const LogOptions& options)
      : fd_(fd),
        older_(older),
        directory_(std::move(directory)),
        container_(std::move(container)),
        options_(options) {
    left_ = options.limit_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
  }
  ~LogStream() override {
    if (ticket_ != 0) Ticker::instance().remove(ticket_);
    end_older();
    ::close(fd_);
  }

  std::optional<std::string> read() override {
    if (left_ == 0) return std::nullopt;
    std::string piece = next();
    if (piece.empty() && !follows()) {
      // Reads what was written between the last read and the container's exit.
      piece = next();
      if (piece.empty()) return std::nullopt;
    }
    if (piece.size() > left_) piece.resize(left_);
    left_ -= piece.size();
    return piece;
  }

  void on_ready(std::function<void()> wake) override {
    if (options_.follow == LogOptions::Follow::kYes && options_.run == LogOptions::Run::kCurrent)
      ticket_ = Ticker::instance().add(std::move(wake));
  }

 private:
  static std::string read_piece(int fd) {
    std::string piece(kPiece, '\0');
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    piece.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return piece;
  }

  void end_older() {
    if (older_ >= 0) ::close(older_);
    older_ = -1;
  }

  std::string next() {
    if (older_ >= 0) {
      if (std::string piece = read_piece(older_); !piece.empty()) return piece;
      end_older();
    }
    struct stat info {};
    // The log was rotated: the new part starts at 0.
    if (::fstat(fd_, &info) == 0 && info.st_size < ::lseek(fd_, 0, SEEK_CUR))
      ::lseek(fd_, 0, SEEK_SET);
    return read_piece(fd_);
  }

  bool follows() {
    if (options_.follow != LogOptions::Follow::kYes || options_.run != LogOptions::Run::kCurrent)
      return false;
    struct stat opened {
    }, named{};
    // A new run of the container has a new file.
    if (::fstat(fd_, &opened) != 0 ||
        ::stat((directory_ / (container_ + ".log")).c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino)
      return false;
    return still_runs(directory_, container_);
  }

  const int fd_;
  int older_;
  const os::Path directory_;
  const std::string container_;
  const LogOptions options_;
  std::uint64_t left_ = 0;
  std::uint64_t ticket_ = 0;
};

// Extracts the container's output from the lines of a runtime.
class CriStream final : public net::BodyStream {
 public:
  CriStream(std::unique_ptr<net::BodyStream> lines, std::optional<std::uint64_t> limit_bytes)
      : lines_(std::move(lines)),
        left_(limit_bytes.value_or(std::numeric_limits<std::uint64_t>::max())) {}

  std::optional<std::string> read() override {
    while (left_ > 0 && !ended_) {
      const std::optional<std::string> piece = lines_->read();
      ended_ = !piece;
      std::string text = ended_ ? log_.finish() : log_.take(*piece);
      if (text.empty() && piece && piece->empty()) return text;
      if (text.empty()) continue;
      if (text.size() > left_) text.resize(left_);
      left_ -= text.size();
      return text;
    }
    return std::nullopt;
  }
  void on_ready(std::function<void()> wake) override { lines_->on_ready(std::move(wake)); }

 private:
  const std::unique_ptr<net::BodyStream> lines_;
  internal::CriLog log_;
  std::uint64_t left_;
  bool ended_ = false;
};

// Offset of the last `lines` lines, searching from the end.
off_t tail_offset(int fd, std::uint64_t lines) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || lines == 0) return info.st_size;
  std::string piece(kPiece, '\0');
  off_t end = info.st_size;
  std::uint64_t seen = 0;
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(kPiece));
    const ssize_t count = ::pread(fd, piece.data(), static_cast<std::size_t>(end - begin), begin);
    if (count <= 0) return end;
    for (off_t i = count - 1; i >= 0; --i) {
      if (piece[static_cast<std::size_t>(i)] != '\n' || begin + i == info.st_size - 1) continue;
      if (++seen == lines) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

std::uint64_t count_lines(int fd) {
  std::string piece(kPiece, '\0');
  std::uint64_t lines = 0;
  off_t at = 0;
  for (ssize_t count = 0; (count = ::pread(fd, piece.data(), piece.size(), at)) > 0; at += count) {
    lines += static_cast<std::uint64_t>(std::count(piece.begin(), piece.begin() + count, '\n'));
  }
  return lines;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Error rotation_error(const os::Path& path) {
  return Error(Code::kInternal,
               "rotate " + path.string() + ": " + std::generic_category().message(errno));
}

// Start of the first whole line in [begin, end). `begin` itself if it is 0, or if no line ends in
// the range.
off_t first_line_after(int fd, off_t begin, off_t end) {
  if (begin <= 0) return 0;
  std::string piece(kPiece, '\0');
  for (off_t at = begin - 1; at < end;) {
    const ssize_t count =
        ::pread(fd, piece.data(),
                std::min<std::size_t>(piece.size(), static_cast<std::size_t>(end - at)), at);
    if (count <= 0) break;
    const auto newline =
        std::string_view(piece).substr(0, static_cast<std::size_t>(count)).find('\n');
    const off_t next = at + static_cast<off_t>(newline) + 1;
    if (newline != std::string_view::npos) return next < end ? next : begin;
    at += count;
  }
  return begin;
}

bool copy_range(int from, off_t begin, off_t end, int to) {
  std::string piece(kPiece, '\0');
  for (off_t at = begin; at < end;) {
    const ssize_t count =
        ::pread(from, piece.data(),
                std::min<std::size_t>(piece.size(), static_cast<std::size_t>(end - at)), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;  // the file was truncated meanwhile
    for (ssize_t done = 0; done < count;) {
      const ssize_t written =
          ::write(to, piece.data() + done, static_cast<std::size_t>(count - done));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      done += written;
    }
    at += count;
  }
  return true;
}

Result<std::optional<std::uint64_t>> number(const net::Query& query, std::string_view name) {
  const auto text = query.find(name);
  if (!text || text->empty()) return std::optional<std::uint64_t>();
  const auto value = parse_integer<std::uint64_t>(*text);
  if (!value) return Error(Code::kInvalid, std::string(name) + ": must be a non-negative number");
  return value;
}

bool flag(const net::Query& query, std::string_view name) {
  const std::string_view text = query.get(name);
  return text == "true" || text == "1";
}

}  // namespace

Result<LogOptions> LogOptions::parse(std::string_view text) {
  const net::Query query = net::Query::parse(text);
  LogOptions options;
  TRY(options.tail_lines, number(query, "tailLines"));
  TRY(options.limit_bytes, number(query, "limitBytes"));
  if (flag(query, "follow")) options.follow = Follow::kYes;
  if (flag(query, "previous")) options.run = Run::kPrevious;
  return options;
}

os::Path pod_directory(const os::Path& root, std::string_view ns, std::string_view name,
                       std::string_view uid) {
  std::string directory = std::string(ns) + "_" + std::string(name) + "_" + std::string(uid);
  std::replace(directory.begin(), directory.end(), '/',
               '_');  // keeps pods with odd names below the root
  return root / "pods" / directory;
}

Result<std::unique_ptr<net::BodyStream>> open_log(const os::Path& directory,
                                                  const std::string& container,
                                                  const LogOptions& options) {
  const bool previous = options.run == LogOptions::Run::kPrevious;
  const os::Path path = directory / (container + (previous ? ".previous.log" : ".log"));
  if (container.empty() || container.find('/') != std::string::npos)
    return Error(Code::kInvalid, "container name '" + container + "'");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return Error(Code::kNotFound,
                 previous ? "previous terminated container \"" + container + "\" not found"
                          : "container \"" + container + "\" has written nothing yet");
  }
  // The older part comes first.
  int older = previous ? -1
                       : ::open((directory / (container + ".log.1")).c_str(),
                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (options.tail_lines) {
    ::lseek(fd, tail_offset(fd, *options.tail_lines), SEEK_SET);
    const std::uint64_t newer_lines = older >= 0 ? count_lines(fd) : *options.tail_lines;
    if (newer_lines < *options.tail_lines) {
      ::lseek(older, tail_offset(older, *options.tail_lines - newer_lines), SEEK_SET);
    } else if (older >= 0) {
      ::close(std::exchange(older, -1));
    }
  }
  const auto record = read_record(directory);
  if (!record.ok() || (*record)["logFormat"].as_string() != "cri")
    return std::make_unique<LogStream>(fd, older, directory, container, options);
  LogOptions lines = options;
  lines.limit_bytes.reset();  // the limit applies to the extracted text
  auto raw = std::make_unique<LogStream>(fd, older, directory, container, lines);
  return std::make_unique<CriStream>(std::move(raw), options.limit_bytes);
}

Status rotate_log(const os::Path& log, std::uint64_t bytes_max) {
  const int fd = ::open(log.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT ? Status() : Status(rotation_error(log));
  const Descriptor file(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return rotation_error(log);
  const off_t size = info.st_size;
  if (static_cast<std::uint64_t>(size) <= bytes_max) return {};
  os::Path older = log, fresh = log;
  older += ".1";
  fresh += ".1.new";
  // Readers of the older part keep their open file.
  ::unlink(fresh.c_str());
  const Descriptor out(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                              info.st_mode & 0777));
  if (out.fd() < 0) return rotation_error(fresh);
  if (!copy_range(fd, first_line_after(fd, size - static_cast<off_t>(bytes_max), size), size,
                  out.fd()) ||
      ::rename(fresh.c_str(), older.c_str()) != 0) {
    const Error error = rotation_error(log);
    ::unlink(fresh.c_str());
    // Losing a part of the log is better than a full disk.
    (void)::ftruncate(fd, 0);
    return error;
  }
  // The writer keeps its open file, so truncate it. Output since the copy is lost.
  if (::ftruncate(fd, 0) != 0) return rotation_error(log);
  return {};
}

}  // namespace varda::node
