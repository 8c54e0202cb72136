#include "apiserver/audit.h"

#include <algorithm>

#include "base/log.h"

namespace varda::apiserver {

Result<AuditLevel> parse_audit_level(std::string_view text) {
  if (text == "None") return AuditLevel::kNone;
  if (text == "Metadata") return AuditLevel::kMetadata;
  if (text == "Request") return AuditLevel::kRequest;
  return Error(Code::kInvalid,
               "the level of an audit log must be None, Metadata or Request, not \"" +
                   std::string(text) + "\"");
}

AuditLog::AuditLog(os::FileSystem& fs, Options options) : fs_(fs), options_(std::move(options)) {}

Result<std::unique_ptr<AuditLog>> AuditLog::open(os::FileSystem& fs, Options options) {
  std::unique_ptr<AuditLog> log(
      new AuditLog(fs, std::move(options)));  // NOLINT: private constructor
  TRY_VOID(log->reopen().context("audit log " + log->options_.file.string()));
  if (metrics::Registry* metrics = log->options_.metrics; metrics != nullptr) {
    log->written_ =
        &metrics->counter("apiserver_audit_event_total", "Events written to the audit log.");
    log->failed_ = &metrics->counter("apiserver_audit_error_total",
                                     "Events of the audit log that were dropped.");
  }
  log->thread_ = std::jthread([raw = log.get()](const std::stop_token& stop) { raw->run(stop); });
  return log;
}

AuditLog::~AuditLog() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (file_ != nullptr) (void)file_->sync();
}

void AuditLog::add(const codec::Json& event) {
  std::string line = codec::write_json(event);
  line += '\n';
  {
    MutexLock lock(mutex_);
    if (queue_.size() < options_.queue_max) {
      queue_.push_back(std::move(line));
      changed_.notify_all();
      return;
    }
  }
  dropped(1);
}

void AuditLog::flush() {
  MutexLock lock(mutex_);
  while (!queue_.empty() || writing_) changed_.wait(mutex_);
}

void AuditLog::dropped(std::size_t events) {
  if (failed_ != nullptr) failed_->add(static_cast<double>(events));
}

Status AuditLog::reopen() {
  TRY(const auto existing, fs_.stat(options_.file));
  if (existing && existing->kind == os::FileKind::kOther)
    return Error(Code::kInvalid, "must be a file, not a device or a pipe");
  TRY(file_, fs_.open(options_.file, os::Open::kCreate, 0600));
  TRY(size_, file_->size());
  // The code below truncates the file, so refuse files that are not audit logs. After a power cut,
  // an audit log may begin with zeros.
  constexpr std::string_view kBegin = R"({"kind":"Event")";
  TRY(const std::string begins, file_->read(kBegin.size()));
  if (!begins.empty() && begins[0] != '\0' && begins != kBegin.substr(0, begins.size())) {
    file_.reset();
    return Error(Code::kInvalid, "the file exists and is not an audit log");
  }
  TRY_VOID(fs_.set_mode(options_.file, 0600));
  // A killed process may have left half a line, a power cut a damaged end.
  constexpr std::uint64_t kTail = 1 << 20;
  const std::uint64_t begin = size_ - std::min(size_, kTail);
  TRY_VOID(file_->seek(begin));
  std::string tail;
  while (tail.size() < size_ - begin) {
    TRY(const std::string piece, file_->read(size_ - begin - tail.size()));
    if (piece.empty()) break;
    tail += piece;
  }
  const std::size_t end = tail.rfind('\n');
  const std::uint64_t whole = end == std::string::npos ? begin : begin + end + 1;
  if (whole < size_) TRY_VOID(file_->truncate(whole));
  size_ = whole;
  return file_->seek(size_);
}

Status AuditLog::rotate() {
  const auto name = [this](std::size_t number) {
    return os::Path(options_.file) += "." + std::to_string(number);
  };
  (void)file_->sync();
  file_.reset();
  if (options_.files_max == 0) {
    TRY_VOID(fs_.remove(options_.file));
    return reopen();
  }
  TRY_VOID(fs_.remove(name(options_.files_max)));
  for (std::size_t number = options_.files_max; number > 1; --number) {
    TRY(const auto existing, fs_.stat(name(number - 1)));
    if (existing) TRY_VOID(fs_.rename(name(number - 1), name(number)));
  }
  TRY_VOID(fs_.rename(options_.file, name(1)));
  return reopen();
}

Status AuditLog::write(const std::string& lines) {
  if (file_ == nullptr) TRY_VOID(reopen());
  if (size_ > 0 && size_ + lines.size() > options_.bytes_max) TRY_VOID(rotate());
  Status done = file_->write(lines);
  if (done.ok()) {
    size_ += lines.size();
    return done;
  }
  // A partial line would corrupt the next one.
  if (!file_->truncate(size_).ok() || !file_->seek(size_).ok()) file_.reset();
  return done;
}

void AuditLog::run(const std::stop_token&) {
  constexpr std::size_t kBatchBytes = 256 << 10;
  MutexLock lock(mutex_);
  for (;;) {
    while (queue_.empty() && !closing_) changed_.wait(mutex_);
    if (queue_.empty()) return;
    std::string lines;
    std::size_t events = 0;
    const std::uint64_t limit = std::min<std::uint64_t>(kBatchBytes, options_.bytes_max);
    while (!queue_.empty() && (events == 0 || lines.size() + queue_.front().size() <= limit)) {
      lines += queue_.front();
      queue_.pop_front();
      ++events;
    }
    writing_ = true;
    mutex_.unlock();
    const Status done = write(lines);
    if (!done.ok()) {
      dropped(events);
      if (!failing_)
        log::error("audit log write failed, dropping events", {{"error", done.error()}});
    } else if (written_ != nullptr) {
      written_->add(static_cast<double>(events));
    }
    failing_ = !done.ok();
    mutex_.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace varda::apiserver
