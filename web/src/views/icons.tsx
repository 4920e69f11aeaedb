const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3 3",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  undo: "M3 6h6a4 4 0 0 1 0 8H6M3 6l3-3M3 6l3 3",
  redo: "M13 6H7a4 4 0 0 0 0 8h3M13 6l-3-3M13 6l-3 3",
  branch: "M5 3v10M5 9c0-2 6-1 6-4M11 5a1.6 1.6 0 1 0 0-3.2A1.6 1.6 0 0 0 11 5Z",
  panel: "M2 3h12v10H2zM10 3v10",
  menu: "M2 4h12M2 8h12M2 12h12",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  close: "M4 4l8 8M12 4l-8 8",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  folder: "M2 4h4l1.5 1.5H14V13H2z",
  upload: "M8 11V3M5 6l3-3 3 3M3 13h10",
  save: "M8 3v8M5 8l3 3 3-3M3 13h10",
  table: "M2 3h12v10H2zM2 6.5h12M6.5 3v10",
  compare: "M3 3h4v10H3zM9 3h4v10H9z",
  sun: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.3 6.4a1.7 1.7 0 1 1 2.6 1.5c-.6.4-.9.7-.9 1.3M8 11.2h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
