#include "src/server/engine/prefix_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "src/server/engine/prefix_store_impl.h"

namespace ebb::server {
namespace {

constexpr size_t kMostLookups = 8;  // limit of queued lookups
constexpr size_t kMostWrites = 4;
// A prompt that continues a stored one is written only if it is longer by 1/kStaleParts, so that a
// growing conversation is not rewritten with every turn.
constexpr size_t kStaleParts = 4;

}  // namespace

PrefixStore::PrefixStore() = default;
PrefixStore::~PrefixStore() { Stop(0); }

Result<std::unique_ptr<PrefixStore>> PrefixStore::Create(std::unique_ptr<store::SessionStore> store,
                                                         std::string rows, std::string model,
                                                         const PrefixStoreOptions& options) {
  EBB_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::Create());
  std::unique_ptr<PrefixStore> prefixes(new PrefixStore());
  prefixes->impl_ = std::make_unique<Impl>(std::move(store), std::move(rows), std::move(model),
                                           options, std::move(scratch));
  // Reads the index in the background, so that the first request need not wait for it.
  boost::asio::post(prefixes->impl_->reading,
                    [impl = prefixes->impl_.get()] { impl->Fail(impl->Refresh(/*now=*/true)); });
  return prefixes;
}

const PrefixStoreOptions& PrefixStore::options() const { return impl_->options; }
std::string PrefixStore::OwnerOf(const std::string& key) const {
  return PrefixOwner(impl_->rows, key);
}

bool PrefixStore::Find(const std::string& key, std::vector<Token> prompt, size_t least,
                       uint64_t most_bytes, Found then) {
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->IsBackedOff() || impl_->num_lookups >= kMostLookups) return false;
    ++impl_->num_lookups;
  }
  boost::asio::post(impl_->reading,
                    [impl = impl_.get(), owner = OwnerOf(key), prompt = std::move(prompt), least,
                     most_bytes, then = std::move(then)] {
                      impl->Look(DescribePrefix(owner, prompt), prompt, least, most_bytes, then);
                    });
  return true;
}

void PrefixStore::GiveUp() { impl_->Fail(IoError("the session store did not answer in time")); }

bool PrefixStore::CanPut() const {
  const MutexLock lock(impl_->mutex);
  return !impl_->IsBackedOff() && impl_->num_writes < kMostWrites;
}

bool PrefixStore::Wants(const std::string& key, std::span<const Token> tokens) const {
  if (tokens.size() < impl_->options.least_tokens) return false;
  const StoredPrefix wanted = DescribePrefix(OwnerOf(key), tokens);
  const MutexLock lock(impl_->mutex);
  const auto best = impl_->BestOf(wanted, tokens, UINT64_MAX);
  const size_t stored = best.has_value() ? best->num_tokens : 0;
  return tokens.size() - stored >= std::max(impl_->options.least_tokens, stored / kStaleParts);
}

std::string PrefixStore::NewFile() const {
  return NewScratchPath(impl_->scratch.path(), "kept-prompt");
}

void PrefixStore::Put(const std::string& key, std::span<const Token> tokens, std::string file) {
  {
    const MutexLock lock(impl_->mutex);
    ++impl_->num_writes;
  }
  boost::asio::post(impl_->writing,
                    [impl = impl_.get(), prefix = DescribePrefix(OwnerOf(key), tokens),
                     file = std::move(file)] { impl->Write(prefix, file); });
}

void PrefixStore::Use(const std::string& key, std::span<const Token> tokens) {
  const StoredPrefix wanted = DescribePrefix(OwnerOf(key), tokens);
  const int64_t now_ms = store::NowMs();
  const MutexLock lock(impl_->mutex);
  const auto best = impl_->BestOf(wanted, tokens, UINT64_MAX);
  if (!best.has_value()) return;
  impl_->index[best->id].used_here_ms = now_ms;
  if (now_ms - impl_->touched_ms < kTouchEveryMs) return;
  impl_->touched_ms = now_ms;
  boost::asio::post(impl_->writing, [impl = impl_.get()] { impl->Touch(); });
}

void PrefixStore::DropDamaged(const std::string& id) { impl_->DropDamaged(id); }

void PrefixStore::Stop(double seconds) {
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->is_stopping) return;
    ++impl_->num_writes;
  }
  boost::asio::post(impl_->writing, [impl = impl_.get()] {
    impl->Touch();
    impl->EndWrite();
  });
  {
    const auto end =
        Impl::Clock::now() + std::chrono::duration_cast<Impl::Clock::duration>(InSeconds(seconds));
    const MutexLock lock(impl_->mutex);
    while (impl_->num_writes > 0 && impl_->changed.WaitUntil(impl_->mutex, end)) {
    }
    impl_->is_stopping = true;
  }
  impl_->reading.stop();
  impl_->reading.join();
  impl_->writing.join();
}

std::string PrefixStore::MetricsText() const {
  const MutexLock lock(impl_->mutex);
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       uint64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  const Impl::Counts counted = impl_->counted;
  add("ebb_prefix_store_hits_total", "counter", "Prompts whose beginning the session store had.",
      counted.hits);
  add("ebb_prefix_store_misses_total", "counter",
      "Prompts that were looked up in the session store in vain.", counted.misses);
  add("ebb_prefix_store_tokens_total", "counter", "Tokens that prompts had in the session store.",
      counted.tokens);
  add("ebb_prefix_store_read_bytes_total", "counter",
      "Bytes of prompts read from the session store.", counted.fetched_bytes);
  add("ebb_prefix_store_written_total", "counter", "Prompts written to the session store.",
      counted.written);
  add("ebb_prefix_store_written_bytes_total", "counter", "Their bytes.", counted.written_bytes);
  add("ebb_prefix_store_failures_total", "counter",
      "Times that the session store failed, or was too slow, and was left alone.",
      counted.failures);
  constexpr std::string_view kDropped = "ebb_prefix_store_dropped_total";
  text += fmt::format(
      "# HELP {0} Prompts removed from the session store, by reason.\n# TYPE {0} counter\n"
      "{0}{{reason=\"room\"}} {1}\n{0}{{reason=\"damaged\"}} {2}\n",
      kDropped, counted.dropped_for_room, counted.dropped_damaged);
  add("ebb_prefix_store_prompts", "gauge", "Prompts in the session store, as this server knows.",
      impl_->index.size());
  add("ebb_prefix_store_bytes", "gauge", "Their bytes.", impl_->TotalBytes());
  return text;
}

}  // namespace ebb::server
