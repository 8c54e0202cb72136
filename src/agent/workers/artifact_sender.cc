#include "agent/workers/artifact_sender.h"

#include <algorithm>
#include <utility>

#include "agent/core/registry_client.h"
#include "base/log.h"
#include "registry/client.h"

namespace varda::agent::workers {

ArtifactSender::ArtifactSender(Options options, ArtifactStore& store, os::FileSystem& fs,
                               const kube::Client& api)
    : options_(options),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      store_(store),
      fs_(fs),
      api_(api),
      bucket_upload_(options_.buckets, store_, fs_),
      retry_(options_.retry_first) {
  if (options_.metrics == nullptr) return;
  sent_bytes_ = &options_.metrics->counter("varda_agent_artifact_upload_bytes_total",
                                           "Bytes of workers' artifacts sent to the registry.");
  uploaded_ = &options_.metrics->counter("varda_agent_artifact_uploads_total",
                                         "Workers' artifacts that the registry has stored.");
}

std::vector<runtime::Task> ArtifactSender::tasks() {
  return {{.name = "uploads",
           .due = [this] { return store_.loaded() ? store_.due() : load_at_; },
           .step = [this](const Context& ctx) { step(ctx); },
           .wakeup = &store_.wakeup()}};
}

void ArtifactSender::load_store() {
  const Status loaded = store_.load_again();
  if (loaded.ok()) {
    retry_ = options_.retry_first;
    return log::info("workers can upload files again");
  }
  log::warn("workers cannot upload files, retrying", {{"error", loaded.error()}});
  load_at_ = clock_.now() + retry_;
  retry_ = std::min(retry_ * 2, options_.retry_max);
}

void ArtifactSender::step(const Context& ctx) {
  if (!store_.loaded()) return load_store();
  const auto pending = store_.take();
  if (!pending) return;
  bool progressed = false;
  const Status sent = send(ctx, *pending, progressed);
  if (sent.ok()) {
    retry_ = options_.retry_first;
    if (uploaded_ != nullptr) uploaded_->add();
    log::info("artifact uploaded", {{"worker", pending->key},
                                    {"artifact", pending->artifact.name},
                                    {"bytes", pending->artifact.bytes},
                                    {"sha256", pending->artifact.sha256.hex()}});
    return store_.set_uploaded(*pending);
  }
  if (sent.error().code() == Code::kCorrupt && is_damaged(*pending)) {
    log::error("artifact damaged on this disk",
               {{"worker", pending->key}, {"artifact", pending->artifact.name}});
    return store_.set_failed(*pending, "the node's disk damaged the file");
  }
  if (!ctx.done())
    log::warn(
        "artifact upload interrupted, retrying",
        {{"worker", pending->key}, {"artifact", pending->artifact.name}, {"error", sent.error()}});
  if (progressed) retry_ = options_.retry_first;
  store_.set_waiting(*pending, sent.error().message(), clock_.now() + retry_);
  retry_ = std::min(retry_ * 2, options_.retry_max);
}

Status ArtifactSender::send(const Context& ctx, const ArtifactStore::Pending& pending,
                            bool& progressed) {
  std::uint64_t sent_bytes = 0;
  std::optional<std::uint64_t> last;
  SteadyTime report_at = clock_.now() + options_.progress_period;
  const BucketUpload::Progress progress = [&](std::uint64_t done, std::uint64_t now_sent) {
    if (now_sent > sent_bytes) {
      progressed = true;
      if (sent_bytes_ != nullptr) sent_bytes_->add(static_cast<double>(now_sent - sent_bytes));
    }
    sent_bytes = now_sent;
    last = done;
    if (clock_.now() < report_at) return;
    report_at = clock_.now() + options_.progress_period;
    store_.set_sent(pending, done);
  };
  const Status sent = pending.bucket ? bucket_upload_.send(ctx, pending, progress)
                                     : send_to_registry(ctx, pending, progress);
  if (!sent.ok() && last) store_.set_sent(pending, *last);
  return sent;
}

Status ArtifactSender::send_to_registry(const Context& ctx, const ArtifactStore::Pending& pending,
                                        const BucketUpload::Progress& progress) {
  core::RegistryClient http(api_);
  return registry::upload(
      ctx, http, {.url = "", .token = ""}, fs_, pending.path, pending.artifact.sha256,
      {.piece_bytes = options_.piece_bytes,
       .attempts_max = 1,
       .progress =
           [&progress](const registry::UploadProgress& now) { progress(now.done, now.sent); },
       .base = pending.base});
}

bool ArtifactSender::is_damaged(const ArtifactStore::Pending& pending) {
  const auto file = fs_.open(pending.path, os::Open::kRead);
  if (!file.ok()) return file.error().code() == Code::kNotFound;
  codec::Sha256Stream stream;
  while (true) {
    const auto bytes = (*file)->read(256 << 10);
    if (!bytes.ok()) return false;
    if (bytes->empty()) return stream.finish() != pending.artifact.sha256;
    stream.update(*bytes);
  }
}

}  // namespace varda::agent::workers
