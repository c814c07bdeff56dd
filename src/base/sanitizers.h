// Defines constants for the sanitizers that the program was built with. g++ shows a sanitizer by a
// macro, clang by a feature.
#ifndef EBB_BASE_SANITIZERS_H_
#define EBB_BASE_SANITIZERS_H_

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace ebb {

#if defined(__has_feature)
#define EBB_HAS_FEATURE(feature) __has_feature(feature)
#else
#define EBB_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || EBB_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || EBB_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#undef EBB_HAS_FEATURE

// kShadowMemory is true if most memory that the system counts for the process belongs to a
// sanitizer, so that tests must not compare it.
inline constexpr bool kShadowMemory = kAddressSanitizer || kThreadSanitizer;

// Releases the object of a std::unique_ptr without freeing it, and marks the leak as intended for
// the leak detector.
template <typename Owner>
void Leak(Owner* owner) {
  const void* const leaked = owner->release();
#if defined(__SANITIZE_ADDRESS__)
  if (leaked != nullptr) __lsan_ignore_object(leaked);
#else
  (void)leaked;
#endif
}

}  // namespace ebb

#endif  // EBB_BASE_SANITIZERS_H_
