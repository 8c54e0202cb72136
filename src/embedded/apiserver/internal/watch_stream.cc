#include "apiserver/internal/watch_stream.h"

#include <algorithm>
#include <limits>

#include "apiserver/internal/objects.h"
#include "apiserver/internal/wire_form.h"
#include "base/log.h"
#include "base/text.h"

namespace varda::apiserver {

namespace {

// Time of the last bookmark before the end, so that a client resumes instead of listing.
constexpr auto kBookmarkBeforeEnd = std::chrono::seconds(2);
// Bytes produced per read().
constexpr std::size_t kBatchBytes = 256 << 10;

void append_error(std::string& out, const ApiStatus& status) {
  out += "{\"type\":\"ERROR\",\"object\":";
  codec::write_json(status.to_json(), out);
  out += "}\n";
}

class WatchStream final : public net::BodyStream, net::Timers::Timed {
 public:
  WatchStream(Core& core, WatchRequest request, std::unique_ptr<store::Watch> watch,
              std::unique_ptr<Sessions::Handle> session)
      : core_(core),
        request_(std::move(request)),
        watch_(std::move(watch)),
        session_(std::move(session)) {
    const SteadyTime now = core_.clock.now();
    end_ = now + request_.timeout;
    next_bookmark_ = next_bookmark(now);
  }

  ~WatchStream() override {
    core_.timers.remove(*this);
    watch_.reset();  // before the session, so that its end is reported after the last event
  }

  /// Adds an object that exists when the watch begins; called before the first read().
  void add_present(const Json& object) { append(pending_, "ADDED", object); }

  void on_ready(std::function<void()> wake) override {
    wake_ = std::move(wake);
    watch_->on_ready(wake_);
    set_timer();
  }

  std::optional<std::string> read() override {
    if (ended_) {
      if (pending_.empty()) return std::nullopt;
      return std::exchange(pending_, {});
    }
    if (!pending_.empty()) return std::exchange(pending_, {});
    std::string out;
    // Checked first, so that writes before the change of the kind are sent before the end.
    const bool outdated = kind_is_outdated();
    while (out.size() < kBatchBytes) {
      auto events = watch_->poll(core_.options.limits.watch_batch_events);
      if (!events.ok()) {
        ended_ = true;
        if (events.error().code() == Code::kExhausted) {
          append_error(
              out,
              expired("too old resource version: this watch was too slow and events were dropped"));
        }
        break;
      }
      if (events->empty()) {
        ended_ = ended_ || outdated;
        break;
      }
      for (const store::Event& event : *events) translate(event, out);
    }
    const SteadyTime now = core_.clock.now();
    if (request_.bookmarks && now >= next_bookmark_) {
      append_bookmark(out);
      next_bookmark_ = next_bookmark(now);
      set_timer();
    }
    if (now >= end_ || core_.stopping) ended_ = true;
    if (ended_ && out.empty()) return std::nullopt;
    return out;
  }

 private:
  void due() override { wake_(); }
  void set_timer() {
    if (wake_) core_.timers.add(request_.bookmarks ? std::min(end_, next_bookmark_) : end_, *this);
  }

  // True if the CRD is gone or its spec changed. The client then lists and watches again.
  bool kind_is_outdated() const {
    const KindInfo& info = request_.kind->info();
    if (!info.custom) return false;
    const meta::Resource& resource = info.resource;
    return core_.registry.kinds()->find(resource.group, resource.version, resource.plural) !=
           request_.kind;
  }

  SteadyTime next_bookmark(SteadyTime now) const {
    const SteadyTime periodic = now + core_.options.limits.bookmark_period;
    const SteadyTime last = end_ - kBookmarkBeforeEnd;
    return last > now && last < periodic ? last : periodic;
  }

  Json shown(const Json& object) {
    switch (request_.how.output.as) {
      case Output::As::kTable: {
        Presentation how = request_.how;
        how.now = core_.clock.wall();
        Json metadata = Json::object({{"resourceVersion", object.at("metadata/resourceVersion")}});
        return make_table(*request_.kind, {object}, std::move(metadata), how,
                          std::exchange(headers_, Headers::kWithout));
      }
      case Output::As::kPartial:
      case Output::As::kPartialList:
        return make_partial(object, request_.how.output.as_version);
      case Output::As::kObject:
        break;
    }
    return object;
  }

  void append(std::string& out, std::string_view type, const Json& object) {
    out.append("{\"type\":\"").append(type).append("\",\"object\":");
    codec::write_json(shown(object), out);
    out += "}\n";
  }

  void append_bookmark(std::string& out) {
    const meta::Resource& resource = request_.kind->resource();
    const bool partial = request_.how.output.as != Output::As::kObject;
    const Json object = Json::object(
        {{"kind", partial ? std::string("PartialObjectMetadata") : resource.kind},
         {"apiVersion",
          partial ? "meta.k8s.io/" + request_.how.output.as_version : resource.api_version()},
         {"metadata", Json::object({{"resourceVersion", std::to_string(watch_->progress())}})}});
    out += "{\"type\":\"BOOKMARK\",\"object\":";
    if (request_.how.output.as == Output::As::kTable) {
      codec::write_json(
          make_table(*request_.kind, {}, object["metadata"], request_.how, Headers::kWithout), out);
    } else {
      codec::write_json(object, out);
    }
    out += "}\n";
  }

  // Appends `entry`; its value may be an earlier one.
  void append(std::string& out, std::string_view type, const store::Entry& entry) {
    if (!request_.how.output.verbatim()) {
      const auto object = Objects::decode(*request_.kind, entry);
      if (object.ok()) return append(out, type, object.value());
    } else {
      const std::size_t before = out.size();
      out.append("{\"type\":\"").append(type).append("\",\"object\":");
      if (append_wire_form(*request_.kind, entry, Place::kAlone, out).ok()) {
        out += "}\n";
        return;
      }
      out.resize(before);
    }
    log::error("watched object is unreadable", {{"name", entry.key}});
  }

  // With a selection by name only, no object enters or leaves, and no object needs parsing.
  void pass_on(const store::Event& event, std::string& out) {
    if (!request_.selection.empty() &&
        !request_.selection.matches_name(request_.kind->key_of(event.entry.key)))
      return;
    append(out,
           event.type == store::EventType::kDelete ? "DELETED"
           : event.previous != nullptr             ? "MODIFIED"
                                                   : "ADDED",
           event.entry);
  }

  // Translates a change for a client with this selection. Entering is ADDED. Leaving is DELETED
  // with the old object and the new revision, from which the client resumes.
  void translate(const store::Event& event, std::string& out) {
    if (request_.selection.by_name_only()) return pass_on(event, out);
    const auto selected =
        [this](const std::shared_ptr<const store::Value>& value) -> std::optional<bool> {
      const auto object = core_.recent_trees.get(*request_.kind, value);
      if (object == nullptr) return std::nullopt;
      return request_.selection.matches(*request_.kind, *object);
    };
    const std::optional<bool> is = selected(event.entry.value);
    if (!is) {
      log::error("watched object is unreadable", {{"name", event.entry.key}});
      return;
    }
    if (event.type == store::EventType::kDelete) {
      if (*is) append(out, "DELETED", event.entry);
      return;
    }
    const bool was = event.previous != nullptr && selected(event.previous).value_or(true);
    if (*is) {
      append(out, was ? "MODIFIED" : "ADDED", event.entry);
    } else if (was) {
      store::Entry left = event.entry;
      left.value = event.previous;
      append(out, "DELETED", left);
    }
  }

  Core& core_;
  WatchRequest request_;
  std::function<void()> wake_;
  std::unique_ptr<store::Watch> watch_;
  std::unique_ptr<Sessions::Handle> session_;
  std::string pending_;
  SteadyTime end_;
  SteadyTime next_bookmark_;
  Headers headers_ = Headers::kWith;
  bool ended_ = false;
};

// A stream with a single text.
class TextStream : public net::BodyStream {
 public:
  explicit TextStream(std::string text) : text_(std::move(text)) {}
  std::optional<std::string> read() override {
    if (text_.empty()) return std::nullopt;
    return std::exchange(text_, {});
  }
  void on_ready(std::function<void()>) override {}

 private:
  std::string text_;
};

}  // namespace

Outcome<std::unique_ptr<net::BodyStream>> open_watch(Core& core, WatchRequest request) {
  store::Revision after = 0;
  const std::string& text = request.resource_version;
  if (!text.empty()) {
    const auto value = parse_integer<std::uint64_t>(text);
    if (!value) {
      return internal("resourceVersion: Invalid value: " + in_quotes(text) +
                      ": strconv.ParseUint: parsing " + in_quotes(text) + ": invalid syntax");
    }
    after = static_cast<store::Revision>(
        std::min<std::uint64_t>(*value, std::numeric_limits<store::Revision>::max()));
  }
  auto session = core.sessions.open(request.caller);
  if (session == nullptr) return too_many_requests("too many watches are open; try again later");
  if (request.timeout.count() <= 0) request.timeout = core.options.limits.watch_timeout;

  std::string prefix = request.kind->storage_prefix();
  if (request.kind->resource().namespaced && !request.ns.empty()) prefix += request.ns + "/";
  std::vector<Json> present;
  if (after == 0) {
    auto page = core.store.list({.prefix = prefix});
    if (!page.ok()) return store_failure(page.error());
    after = page->revision;
    for (const store::Entry& entry : page->entries) {
      TRY(Json object, Objects::decode(*request.kind, entry));
      if (request.selection.matches(*request.kind, object)) present.push_back(std::move(object));
    }
  }
  auto watch = core.store.watch(prefix, after);
  if (!watch.ok()) {
    if (watch.error().code() != Code::kGone) return store_failure(watch.error());
    std::string out;
    append_error(out, expired("too old resource version: " + std::to_string(after) + " (" +
                              std::to_string(core.store.oldest()) + ")"));
    return std::unique_ptr<net::BodyStream>(std::make_unique<TextStream>(std::move(out)));
  }
  auto stream = std::make_unique<WatchStream>(core, std::move(request), std::move(watch).value(),
                                              std::move(session));
  for (const Json& object : present) stream->add_present(object);
  return std::unique_ptr<net::BodyStream>(std::move(stream));
}

}  // namespace varda::apiserver
