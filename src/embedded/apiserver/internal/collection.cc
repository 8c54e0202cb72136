// Verbs on collections: list, watch and deletecollection.
#include <algorithm>

#include "apiserver/internal/dialect.h"
#include "apiserver/internal/metadata.h"
#include "apiserver/internal/paging.h"
#include "apiserver/internal/watch_stream.h"
#include "apiserver/internal/wire_form.h"

namespace varda::apiserver {

Outcome<Dialect::Selected> Dialect::select(Call& call) const {
  const Kind& kind = *call.kind;
  TRY(const Selection selection, Selection::parse(call.query, kind));
  TRY(const ListQuery query, ListQuery::parse(call.query, core_.store));
  std::size_t limit = query.limit;
  const std::size_t most = core_.options.limits.list_items_max;
  if (most != 0 && (limit == 0 || limit > most)) limit = most;

  store::ListOptions options;
  options.prefix = kind.storage_prefix();
  if (kind.resource().namespaced && !call.info.ns.empty()) options.prefix += call.info.ns + "/";
  const std::size_t prefix_size = options.prefix.size();
  options.at = query.at;
  if (query.start) options.start_after = options.prefix + query.start->after;

  Selected out;
  store::Page page;
  // With a selector, a store page may hold too few matches; read on until the client's page is
  // full.
  for (;;) {
    options.limit = limit == 0 ? 0 : selection.empty() ? limit : std::max<std::size_t>(limit, 500);
    auto read = core_.store.list(options);
    if (!read.ok())
      return read.error().code() == Code::kGone ? list_expired(query.start)
                                                : store_failure(read.error());
    page = std::move(read).value();
    std::string last;
    bool full = false;
    const bool by_name = selection.by_name_only();
    if (selection.empty()) out.entries.reserve(out.entries.size() + page.entries.size());
    for (std::size_t i = 0; i < page.entries.size(); ++i) {
      store::Entry& entry = page.entries[i];
      if (i + 1 == page.entries.size()) last = entry.key;
      if (by_name) {
        if (!selection.empty() && !selection.matches_name(kind.key_of(entry.key))) continue;
      } else {
        TRY(const Json object, Objects::decode(kind, entry));
        if (!selection.matches(kind, object)) continue;
      }
      out.entries.push_back(std::move(entry));
      if (limit != 0 && out.entries.size() == limit) {
        last = out.entries.back().key;
        full = true;
        page.more = page.more || i + 1 < page.entries.size();
        break;
      }
    }
    options.at = page.revision;
    options.start_after = last;
    if (full || !page.more) break;
  }
  out.metadata = Json::object({{"resourceVersion", std::to_string(page.revision)}});
  if (page.more && limit != 0) {
    out.metadata.set("continue",
                     PageStart{page.revision, options.start_after.substr(prefix_size)}.token());
    if (selection.empty() && page.remaining > 0)
      out.metadata.set("remainingItemCount", page.remaining);
  }
  return out;
}

Dialect::Reply Dialect::list(Call& call) {
  TRY(Selected selected, select(call));
  if (call.how.output.verbatim()) {
    // Writes the list envelope and copies stored items into it.
    TRY(const Json empty, present_list(*call.kind, {}, std::move(selected.metadata), call.how));
    std::string text = codec::write_json(empty);
    CHECK(text.ends_with("[]}"));
    text.resize(text.size() - 2);
    std::size_t bytes = text.size() + 8;
    for (const store::Entry& entry : selected.entries) bytes += entry.value->size() + 48;
    text.reserve(bytes);
    for (const store::Entry& entry : selected.entries) {
      if (text.back() != '[') text += ',';
      TRY_VOID(append_wire_form(*call.kind, entry, Place::kInList, text));
    }
    return answer_text(call, 200, std::move(text += "]}\n"));
  }
  call.how.now = core_.clock.wall();
  TRY(std::vector<Json> objects, decode_all(*call.kind, selected.entries));
  TRY(Json shown,
      present_list(*call.kind, std::move(objects), std::move(selected.metadata), call.how));
  return answer(call, 200, shown);
}

Outcome<std::vector<Json>> Dialect::decode_all(const Kind& kind,
                                               const std::vector<store::Entry>& entries) const {
  std::vector<Json> objects;
  objects.reserve(entries.size());
  for (const store::Entry& entry : entries) {
    TRY(Json object, Objects::decode(kind, entry));
    objects.push_back(std::move(object));
  }
  return objects;
}

Dialect::Reply Dialect::watch(Call& call) {
  std::vector<StatusCause> causes;
  const std::string match(call.query.get("resourceVersionMatch"));
  const bool initial = call.query.find("sendInitialEvents").has_value();
  constexpr const char* kMatch = "resourceVersionMatch";
  if (initial) {
    if (match != "NotOlderThan") {
      causes.push_back(forbidden_option(
          kMatch, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    causes.push_back(forbidden_option(
        "sendInitialEvents",
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"));
  }
  if (!match.empty()) {
    if (!initial) {
      causes.push_back(forbidden_option(
          kMatch,
          "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
    }
    if (match != "NotOlderThan") {
      causes.push_back(
          {"FieldValueNotSupported",
           "Unsupported value: " + in_quotes(match) + ": supported values: \"NotOlderThan\"",
           kMatch});
    }
    if (!call.query.get("continue").empty())
      causes.push_back(
          forbidden_option(kMatch, "resourceVersionMatch is forbidden when continue is provided"));
  }
  TRY(const std::optional<std::int64_t> timeout, query_number(call.query, "timeoutSeconds"));
  if (!causes.empty()) return bad_list_options(std::move(causes));
  TRY(Selection selection, Selection::parse(call.query, *call.kind));
  if (!call.info.name.empty()) selection.narrow_to_name(call.info.name);
  WatchRequest request{
      .kind = call.kind,
      .ns = call.info.ns,
      .selection = std::move(selection),
      .how = call.how,
      .resource_version = std::string(call.query.get("resourceVersion")),
      .bookmarks = truthy(call.query.find("allowWatchBookmarks")),
      .timeout = std::chrono::seconds(std::clamp<std::int64_t>(timeout.value_or(0), 0, 86400)),
      .caller = call.caller};
  request.how.output.format = Output::Format::kJson;
  net::Response response;
  TRY(response.stream, open_watch(core_, std::move(request)));
  response.headers.add("Content-Type", "application/json");
  response.headers.add("Cache-Control", "no-cache, private");
  return response;
}

Dialect::Reply Dialect::remove_collection(Call& call) {
  DryRun dry_run = DryRun::kNo;
  TRY(const DeleteOptions deletion, read_delete_options(call.http, call.query, core_.options.limits,
                                                        DeletionOf::kCollection, dry_run));
  TRY(Selected selected, select(call));
  TRY(std::vector<Json> objects, decode_all(*call.kind, selected.entries));
  for (const Json& object : objects) {
    auto deleted = objects_.remove(*call.kind, namespace_of(object), name_of(object), deletion,
                                   write_options(call, dry_run));
    if (!deleted.ok() && deleted.error().code != 404) return std::move(deleted).error();
  }
  call.how.now = core_.clock.wall();
  TRY(Json shown,
      present_list(*call.kind, std::move(objects), std::move(selected.metadata), call.how));
  return answer(call, 200, shown);
}

}  // namespace varda::apiserver
