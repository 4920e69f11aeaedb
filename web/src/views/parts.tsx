/** Small parts that several views use. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons.tsx";

interface ButtonProps {
  icon: IconName;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
  class?: string;
}

export function IconButton({ icon, label, onClick, disabled, pressed, class: extra }: ButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${extra ?? ""}`}
      aria-label={label}
      title={label}
      disabled={disabled ?? false}
      aria-pressed={pressed}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

export interface MenuEntry {
  label: string;
  hint?: string;
  run: () => void;
}

/** A button that opens a list of actions: arrow keys move, Escape closes. */
export function Menu({ icon, label, text, entries }: { icon: IconName; label: string; text?: string; entries: MenuEntry[] }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    box.current?.querySelector<HTMLButtonElement>("[role=menuitem]")?.focus();
    const away = (event: PointerEvent) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const onKey = (event: KeyboardEvent) => {
    if (!open) return;
    const items = [...(box.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [])];
    const place = items.indexOf(document.activeElement as HTMLButtonElement);
    if (event.key === "ArrowDown") items[(place + 1) % items.length]?.focus();
    else if (event.key === "ArrowUp") items[(place - 1 + items.length) % items.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      setOpen(false);
      box.current?.querySelector("button")?.focus();
      if (event.key === "Tab") return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" ref={box} onKeyDown={onKey}>
      <button
        type="button"
        class={text ? "quiet" : "icon-button"}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        <Icon name={icon} />
        {text}
      </button>
      {open && (
        <div class="menu-list" role="menu" aria-label={label}>
          {entries.map((entry) => (
            <button
              key={entry.label}
              type="button"
              role="menuitem"
              onClick={() => {
                setOpen(false);
                entry.run();
              }}
            >
              <span>{entry.label}</span>
              {entry.hint && <small>{entry.hint}</small>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** Renders its children once it comes near the screen. */
export function WhenNear({ height, children }: { height: number; children: () => ComponentChildren }) {
  const [near, setNear] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!box.current || near) return;
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setNear(true), { rootMargin: "600px" });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [near]);
  return near ? <>{children()}</> : <div ref={box} style={{ minHeight: `${height}px` }} />;
}

export function Histogram({ counts, label }: { counts: number[]; label: string }) {
  const most = Math.max(1, ...counts);
  const width = 100 / Math.max(1, counts.length);
  return (
    <svg class="histogram" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      {counts.map((count, place) => {
        const height = count ? Math.max(1.5, (count / most) * 24) : 0;
        return <rect key={place} x={place * width} y={24 - height} width={Math.max(width - 1, 0.5)} height={height} />;
      })}
    </svg>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
